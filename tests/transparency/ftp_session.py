"""One FTP session. Usage: ftp_session.py SERVER passive|active|resume FILE, FILE being the server's pub/large."""

import ftplib
import io
import sys

server, mode, path = sys.argv[1:]
content = open(path, "rb").read()
ftp = ftplib.FTP(server, timeout=20)
ftp.login()
ftp.set_pasv(mode != "active")
ftp.cwd("pub")
assert "large" in ftp.nlst()
got = bytearray()
if mode == "resume":
    half = len(content) // 2
    ftp.retrbinary("RETR large", got.extend, rest=half)
    assert got == content[half:]
    data, _ = ftp.ntransfercmd("RETR large")
    data.recv(10)
    data.close()
    try:
        ftp.voidresp()
    except ftplib.error_temp:
        pass
    ftp.voidcmd("NOOP")
else:
    ftp.retrbinary("RETR large", got.extend)
    assert got == content
    ftp.storbinary(f"STOR {mode}", io.BytesIO(content))
    assert ftp.size(mode) == len(content)
ftp.quit()
