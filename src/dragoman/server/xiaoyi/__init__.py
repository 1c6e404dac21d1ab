"""What a server has to do with XiaoYi links."""
