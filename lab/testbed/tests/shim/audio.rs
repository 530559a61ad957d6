//! Tests that an audio stream of Icecast continues when the path that carries the data is cut.

use crate::cases::PLAIN_PORT;
use crate::world::{LIMIT, PORT, World};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use testbed::files::Growth;
use testbed::process::wait_for;
use testbed::programs::{Icecast, audio, icecast};
use testbed::{Host, Offloads};

/// Playing time, in seconds.
const PLAY_S: u32 = 14;
/// Pause in which both daemons confirm the path over the second link. Also the listening time before the cut.
const PAUSE: Duration = Duration::from_secs(3);
/// Minimum duration of the audio that players buffer. A longer gap in the stream is audible.
const BUFFERED: Duration = Duration::from_secs(1);
/// Upper limit on the interval between the pieces that Icecast sends. A longer gap at a listener on Icecast's
/// own host means that the machine is too slow.
const PIECE: Duration = Duration::from_millis(600);

/// Listener that writes the audio to a file.
struct Listener {
    process: testbed::Process,
    file: PathBuf,
    growth: Growth,
}

impl Listener {
    fn begin(world: &World, host: &Host, to: IpAddr, port: u16) -> Listener {
        let file = world.lab.dir().join(format!("heard-{to}-{port}.ogg"));
        let growth = Growth::watch(&file);
        let process = host.spawn("listener", icecast::listen(host, to, port, &file)).unwrap();
        Listener { process, file, growth }
    }

    fn length(&self) -> u64 {
        std::fs::metadata(&self.file).map_or(0, |meta| meta.len())
    }
}

fn an_audio_stream_plays_on(cut: impl FnOnce(&World)) {
    if !Path::new(icecast::PROGRAM).exists() || !Path::new(audio::FFMPEG).exists() {
        return testbed::skip("there is no Icecast or no ffmpeg (scripts/setup.sh)");
    }
    let world = World::new();
    world.lab.join(&world.alpha, &world.beta, 2, Offloads::On).unwrap();
    let played = world.lab.dir().join("played.ogg");
    audio::make_noise(&world.beta, PLAY_S, &played).unwrap();
    let icecast = Icecast::start(&world.beta, &[PORT, PLAIN_PORT]).unwrap();
    std::thread::sleep(PAUSE);
    let source = icecast.play(&played).unwrap();
    let to = world.link.right_v4().into();
    let [by_tcp, by_sctp] = [PLAIN_PORT, PORT].map(|port| Listener::begin(&world, &world.alpha, to, port));
    let beside = Listener::begin(&world, &world.beta, Ipv4Addr::LOCALHOST.into(), PLAIN_PORT);
    std::thread::sleep(PAUSE);
    assert_eq!(world.connects_sctp(), 1, "{:?}", world.fallbacks());
    cut(&world);
    let tcps = by_tcp.length();
    source.finish(LIMIT).unwrap().good().unwrap();
    let Listener { mut process, file, growth } = by_sctp;
    assert!(wait_for(LIMIT, || !process.is_running()), "the stream's end does not come");
    let silence = growth.longest_silence();
    let late = beside.growth.longest_silence().saturating_sub(PIECE);
    let decoded = |file: &Path| audio::decode(&world.alpha, file).unwrap();
    let heard = audio::compare(&decoded(&played), &decoded(&file)).unwrap();
    eprintln!("{heard:?}, longest pause {silence:?}, the machine was late by {late:?}");
    let is_whole = heard.seconds > f64::from(PLAY_S) / 2.0 && heard.missing < 1.0 && heard.other == 0.0;
    assert!(is_whole, "{heard:?}");
    assert!(silence < BUFFERED + late, "nothing came for {silence:?}, and the machine was late by {late:?}");
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
