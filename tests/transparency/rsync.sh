# rsync to and from its daemon: whole trees, and only what differs.
. "$(dirname "$0")/world.sh"
mkdir served source
make_file source/large 8
for n in $(seq 200); do echo "file $n" >"source/small-$n"; done
cat >rsyncd.conf <<END
pid file = $PWD/rsyncd.pid
use chroot = no
uid = root
gid = root
[tree]
path = $PWD/served
read only = no
hosts allow = $ALPHA_IP
END
beta rsync --daemon --no-detach --config=rsyncd.conf --port=873 </dev/null &
wait_port 873
push() { alpha timeout 60 rsync -a source/ "rsync://$BETA_IP/tree/" && diff -r source served; }
pull() { alpha timeout 60 rsync -a "rsync://$BETA_IP/tree/" fetched/ && diff -r source fetched; }
judge "push a tree" push
judge "pull a tree" pull
printf 'changed' | dd of=source/large bs=1 seek=4000000 conv=notrunc status=none
# rsync takes files of one size and one second for the same.
touch -d '1 minute' source/large
judge "push a difference" push
judge "pull a difference" pull
