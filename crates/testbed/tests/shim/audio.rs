//! Audio that is streamed by Icecast plays on when the path in use is cut.

use crate::cases::PLAIN_PORT;
use crate::world::{LIMIT, PORT, World};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testbed::files::Growth;
use testbed::process::wait_for;
use testbed::programs::{Icecast, icecast};
use testbed::{Host, Offloads};

/// Where Debian keeps it.
const FFMPEG: &str = "/usr/bin/ffmpeg";
/// How long it plays, in seconds.
const PLAY_S: usize = 14;
/// How long it may take until a second link is known to both daemons, and how long is listened before and after the cut.
const PAUSE: Duration = Duration::from_secs(3);
/// What players buffer at the least. Longer, and the listener hears it.
const BUFFERED: Duration = Duration::from_secs(1);
/// Samples a second, one channel.
const RATE: usize = 44_100;
/// What a decoder needs until it gives the same samples wherever it began.
const WARM_UP: usize = 8192;

/// Noise, no two parts of which are alike, as Ogg Vorbis.
fn make_noise(host: &Host, into: &Path) {
    let noise = format!("anoisesrc=seed=7:amplitude=0.3:sample_rate={RATE}:duration={PLAY_S}");
    let words = ["-nostdin", "-v", "error", "-f", "lavfi", "-i", &noise, "-c:a", "libvorbis"];
    host.tool("ffmpeg", &[&words[..], &[into.to_str().unwrap()]].concat()).unwrap();
}

/// The samples of an Ogg file, 16 bits each; a decoder that complains is a failure.
fn decode(host: &Host, file: &Path) -> Vec<u8> {
    let into = file.with_extension("raw");
    let mut command = host.command("ffmpeg");
    command.args(["-nostdin", "-v", "warning", "-xerror", "-i"]).arg(file);
    command.args(["-f", "s16le", "-ac", "1"]).arg(&into);
    let told = host.run("decode", command, LIMIT).unwrap().good().unwrap();
    assert_eq!(told.stderr, "", "the decoder complains");
    std::fs::read(into).unwrap()
}

/// Where `heard`, but for its beginning, is in `played` as one piece; gives how many seconds were heard, and how many seconds
/// before the end of what was played they ended.
fn compare(played: &[u8], heard: &[u8]) -> (f64, f64) {
    let mark = &heard[2 * WARM_UP..4 * WARM_UP];
    let at = played.windows(mark.len()).step_by(2).position(|window| window == mark);
    let rest = &played[2 * at.expect("what was heard is not what was played")..];
    let heard = &heard[2 * WARM_UP..];
    let same = rest.iter().zip(heard).take_while(|(a, b)| a == b).count();
    let seconds = |bytes: usize| bytes as f64 / 2.0 / RATE as f64;
    assert_eq!(same, heard.len(), "another sound after {} s of {}", seconds(same), seconds(heard.len()));
    (seconds(heard.len()), seconds(rest.len() - heard.len()))
}

/// Somebody who listens, to a file.
struct Listener {
    process: testbed::Process,
    file: PathBuf,
    growth: Growth,
}

impl Listener {
    fn begin(world: &World, port: u16) -> Listener {
        let file = world.lab.dir().join(format!("heard-{port}.ogg"));
        let growth = Growth::watch(&file);
        let command = icecast::listen(&world.alpha, world.link.right_v4().into(), port, &file);
        let process = world.alpha.spawn("listener", command).unwrap();
        Listener { process, file, growth }
    }

    fn length(&self) -> u64 {
        std::fs::metadata(&self.file).map_or(0, |meta| meta.len())
    }
}

fn an_audio_stream_plays_on(cut: impl FnOnce(&World)) {
    if !Path::new(icecast::PROGRAM).exists() || !Path::new(FFMPEG).exists() {
        return testbed::skip("there is no Icecast or no ffmpeg (scripts/setup.sh --transparency)");
    }
    let world = World::new();
    world.lab.join(&world.alpha, &world.beta, 2, Offloads::On).unwrap();
    let played = world.lab.dir().join("played.ogg");
    make_noise(&world.beta, &played);
    let icecast = Icecast::start(&world.beta, &[PORT, PLAIN_PORT]).unwrap();
    std::thread::sleep(PAUSE);
    let source = icecast.play(&played).unwrap();
    let [by_tcp, by_sctp] = [PLAIN_PORT, PORT].map(|port| Listener::begin(&world, port));
    std::thread::sleep(PAUSE);
    assert_eq!(world.connects_sctp(), 1, "{:?}", world.fallbacks());
    cut(&world);
    let tcps = by_tcp.length();
    source.finish(LIMIT).unwrap().good().unwrap();
    let Listener { mut process, file, growth } = by_sctp;
    assert!(wait_for(LIMIT, || !process.is_running()), "the stream's end does not come");
    let silence = growth.longest_silence();
    let (heard, missing) = compare(&decode(&world.alpha, &played), &decode(&world.alpha, &file));
    eprintln!("heard {heard:.2} s, {missing:.2} s before the end missing, longest pause {silence:?}");
    assert!(heard > PLAY_S as f64 / 2.0 && missing < 1.0, "heard {heard} s, {missing} s are missing");
    assert!(silence < BUFFERED, "nothing came for {silence:?}");
    assert_eq!(by_tcp.length(), tcps, "plain TCP has no other path: was anything cut?");
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_audio_stream_plays_on_when_the_path_in_use_goes_silent() {
    an_audio_stream_plays_on(|world| world.link.silence().unwrap());
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn an_audio_stream_plays_on_when_the_cable_is_pulled() {
    an_audio_stream_plays_on(|world| {
        world.beta.ip(&["link", "set", &world.link.name(), "down"]).unwrap();
    });
}
