"""The server side of XiaoYi links: agents dial in, and are called over what they opened."""
