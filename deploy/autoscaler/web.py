"""HTTP requests that are over in time, whatever a server does once it is connected."""

import http.client
import socket
import threading
import urllib.parse


def ask(url, limit_s, most_bytes, method="GET", body=None, headers=(), tls=None):
    """(status, body) of the answer. OSError or ValueError: there is none. TimeoutError, which is an OSError: the answer was not all there
    after `limit_s` seconds. The timeout of a socket is no such limit: a byte now and then outlasts it. Resolving the name, several addresses and the handshake
    take as long as the system and `limit_s` for each allow."""
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError("it is no http:// or https:// address")
    try:
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(parts.netloc, timeout=limit_s, context=tls)
        else:
            connection = http.client.HTTPConnection(parts.netloc, timeout=limit_s)
    except http.client.HTTPException as error:
        raise ValueError(f"it is no address ({error})") from error
    over, opened = threading.Event(), []

    def end():
        over.set()
        for one in (*opened, connection.sock):  # until it is opened, there may be one that shakes hands
            if one is not None:
                _shut(one)

    timer = threading.Timer(limit_s, end)
    timer.daemon = True
    timer.start()
    try:
        connection.connect()
        opened.append(connection.sock)  # an answer takes it from the connection
        if over.is_set():
            raise TimeoutError
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target or "/", body, dict(headers))
        answer = connection.getresponse()
        with answer:
            text = answer.read(most_bytes)
    except (OSError, ValueError, http.client.HTTPException) as error:
        if not over.is_set():
            raise error if isinstance(error, (OSError, ValueError)) else OSError(f"the answer breaks off ({error!r})")
    finally:
        timer.cancel()
        connection.close()
    if over.is_set():
        raise TimeoutError(f"there was no whole answer within {limit_s:g} s")
    return answer.status, text


def _shut(opened):
    """Whoever waits for it wakes up. An SSLSocket's own shutdown is not for other threads."""
    try:
        socket.socket.shutdown(opened, socket.SHUT_RDWR)
    except OSError:
        pass  # it is over already
