"""A socket to listen on."""

import errno
import socket

from rl_qg.runtime.errors import InputError


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound to an address.

    Raises:
        InputError: it cannot be; the line says which key to change.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise InputError(f"host={host}: is no address of this machine; use 127.0.0.1, or 0.0.0.0 for all") from None
    bound = None
    try:
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        if bound is not None:
            bound.close()
        if isinstance(error, PermissionError):
            raise InputError(f"port={port}: needs more rights ({error.strerror}); use one above 1023") from None
        if error.errno == errno.EADDRINUSE:
            raise InputError(f"port={port}: is in use on {host}; use another, such as port={port + 1}") from None
        raise InputError(f"host={host} port={port}: cannot be bound ({error.strerror}); use 127.0.0.1") from None
    return bound
