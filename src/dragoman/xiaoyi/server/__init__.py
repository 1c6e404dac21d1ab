"""The server side of XiaoYi links: agents dial in, and are called over the WebSockets that they
opened."""
