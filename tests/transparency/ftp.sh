# FTP, whose data connections are second ones: opened by the client (passive) and by the server (active).
. "$(dirname "$0")/world.sh"
mkdir -p root/pub empty home
make_file root/pub/large 8
cat >ftp_server.conf <<END
listen=YES
listen_ipv6=NO
background=NO
anonymous_enable=YES
anon_root=$PWD/root
anon_upload_enable=YES
anon_mkdir_write_enable=YES
anon_umask=022
write_enable=YES
no_anon_password=YES
secure_chroot_dir=$PWD/empty
connect_from_port_20=YES
pasv_min_port=40000
pasv_max_port=40100
seccomp_sandbox=NO
ftp_username=ftp
END
chmod 755 . .. ; chmod 777 root/pub; chmod 555 root
beta vsftpd ftp_server.conf </dev/null &
wait_port 21
session() { alpha timeout 60 python3 "$here/ftp_session.py" "$BETA_IP" "$@"; }
judge "passive: a list, a file each way" session passive root/pub/large
judge "active: a list, a file each way" session active root/pub/large
judge "passive: a transfer resumed and one broken off" session resume root/pub/large
