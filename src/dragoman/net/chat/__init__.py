"""Chat channels: rooms in which people and programs talk. They know no protocol."""

from .channel import (
    Channel,
    ChannelLimits,
    ChatFile,
    ChatMessage,
    Cursor,
    FileCursor,
    MemoryCursor,
    mentions,
)
from .kinds import CHAT_SCHEMES, ChatAddress, channel_from, is_chat_address, parse_chat_address

__all__ = [
    "CHAT_SCHEMES",
    "Channel",
    "ChannelLimits",
    "ChatAddress",
    "ChatFile",
    "ChatMessage",
    "Cursor",
    "FileCursor",
    "MemoryCursor",
    "channel_from",
    "is_chat_address",
    "mentions",
    "parse_chat_address",
]
