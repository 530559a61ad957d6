# Apache as the server; curl, ab and a browser as its clients.
. "$(dirname "$0")/world.sh"
modules=/usr/lib/apache2/modules
mkdir site
make_file site/large 32
make_file site/small 1
python3 "$here/web_page.py" site
cat >apache.conf <<END
ServerRoot $PWD
ServerName $BETA_IP
PidFile $PWD/apache.pid
Mutex file:$PWD
ErrorLog $PWD/error.log
Listen 80
LoadModule mpm_event_module $modules/mod_mpm_event.so
LoadModule authz_core_module $modules/mod_authz_core.so
LoadModule dir_module $modules/mod_dir.so
LoadModule mime_module $modules/mod_mime.so
TypesConfig /etc/mime.types
DocumentRoot $PWD/site
EnableSendfile On
User nobody
END
chmod -R a+rX . && chmod a+x ..
beta /usr/sbin/apache2 -f "$PWD/apache.conf" -D FOREGROUND </dev/null &
wait_port 80
site=http://$BETA_IP
fetch() { alpha curl -sSf --max-time 60 "$@"; }
large() { fetch "$1/large" -o got && cmp got site/large; }
judge "32 MiB" large "$site"
judge "32 MiB by IPv6" large "http://[$BETA_IP6]"
range() { fetch -r 1000000-2000000 "$site/large" | cmp - <(tail -c +1000001 site/large | head -c 1000001); }
judge "a range" range
missing() { fetch "$site/missing"; [ $? = 22 ]; }
judge "a missing page" missing
parallel() {
    fetch -Z --parallel-max 16 "$site/image-[0-11].png?[1-10]" -o "got-#1-#2" &&
        for n in $(seq 0 11); do for m in $(seq 10); do cmp "got-$n-$m" "site/image-$n.png" || return 1; done; done
}
judge "120 images, 16 at a time" parallel
bench() { alpha ab -q -n 400 -c 20 "$@" "$site/image-0.png" | grep -E "Failed requests: +0$"; }
judge "ab, a connection for each" bench
judge "ab, connections kept" bench -k
# The page says what it loaded; its picture is that of the same page from files.
browse() { alpha timeout 120 chromium --headless=new --no-sandbox --disable-gpu --no-proxy-server --window-size=900,700 --user-data-dir="$PWD/profile" "$@"; }
drawn() { browse --dump-dom "$site/page.html" | grep -o "12 images, 1 script"; }
judge "a browser loads a page with images" drawn
picture() { browse --screenshot=by-net.png "$site/page.html" && browse --screenshot=by-file.png "file://$PWD/site/page.html" && cmp by-net.png by-file.png && [ -s by-net.png ]; }
judge "and draws it" picture
