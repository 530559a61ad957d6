//! Generates audio without repetitions, decodes it, and compares it sample by sample.

use crate::host::Host;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::time::Duration;

/// Path of ffmpeg in Debian.
pub const FFMPEG: &str = "/usr/bin/ffmpeg";
/// Limit on the run time of ffmpeg.
const LIMIT: Duration = Duration::from_secs(60);
/// Sample rate, in samples per second. The audio has one channel with 16 bits per sample.
const RATE: usize = 44_100;
/// Number of samples after which a decoder's output no longer depends on its starting point.
const WARM_UP: usize = 8192;

/// Comparison of the heard audio with the played audio.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Heard {
    /// Seconds of heard audio with the same samples as the played audio, up to the first difference.
    pub seconds: f64,
    /// Seconds of heard audio from the first different sample to the end.
    pub other: f64,
    /// Seconds of played audio after the end of the heard audio.
    pub missing: f64,
}

/// Writes noise of this duration as Ogg Vorbis to the file `into`. No two parts of the noise are equal.
///
/// # Errors
/// When ffmpeg fails.
pub fn make_noise(host: &Host, seconds: u32, into: &Path) -> Result<()> {
    let noise = format!("anoisesrc=seed=7:amplitude=0.3:sample_rate={RATE}:duration={seconds}");
    let into = into.to_str().context("a path that is not UTF-8")?;
    let words = ["-nostdin", "-v", "error", "-f", "lavfi", "-i", &noise, "-c:a", "libvorbis", into];
    host.tool("ffmpeg", &words).map(drop)
}

/// Returns the samples of an Ogg file, 16 bits each.
///
/// # Errors
/// When the decoder fails, or prints a warning.
pub fn decode(host: &Host, file: &Path) -> Result<Vec<u8>> {
    let into = file.with_extension("raw");
    let mut command = host.command("ffmpeg");
    command.args(["-nostdin", "-v", "warning", "-xerror", "-i"]).arg(file);
    command.args(["-f", "s16le", "-ac", "1"]).arg(&into);
    let output = host.run("decode", command, LIMIT)?.good()?;
    ensure!(output.stderr.is_empty(), "the decoder reports: {}", output.stderr);
    std::fs::read(&into).with_context(|| format!("cannot read {}", into.display()))
}

/// Drops the first samples of `heard` (see `WARM_UP`), locates the rest in `played`, and compares both from
/// that position on.
///
/// # Errors
/// When too little was heard to decide, or the heard audio was not played.
pub fn compare(played: &[u8], heard: &[u8]) -> Result<Heard> {
    let mark = heard.get(2 * WARM_UP..4 * WARM_UP).context("the recording is almost empty")?;
    let at = played.windows(mark.len()).step_by(2).position(|window| window == mark);
    let rest = &played[2 * at.context("the recording differs from the played audio")?..];
    let heard = &heard[2 * WARM_UP..];
    let same = rest.iter().zip(heard).take_while(|(a, b)| a == b).count();
    let seconds = |bytes: usize| bytes as f64 / 2.0 / RATE as f64;
    Ok(Heard {
        seconds: seconds(same),
        other: seconds(heard.len() - same),
        missing: seconds(rest.len().saturating_sub(heard.len())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(samples: usize) -> Vec<u8> {
        (0..samples as u32)
            .flat_map(|n| (n.wrapping_mul(2_654_435_761) >> 16).to_le_bytes()[..2].to_vec())
            .collect()
    }

    #[test]
    fn heard_audio_is_located_and_its_missing_and_wrong_parts_are_measured() {
        let played = noise(4 * RATE);
        let heard = compare(&played, &played[2 * RATE..6 * RATE]).unwrap();
        assert!((heard.seconds - 2.0).abs() < 0.2 && heard.other == 0.0 && heard.missing == 1.0, "{heard:?}");
        let mut wrong = played[2 * RATE..6 * RATE].to_vec();
        wrong[3 * RATE] ^= 1;
        let heard = compare(&played, &wrong).unwrap();
        assert!((heard.other - 0.5).abs() < 1e-4, "{heard:?}");
    }

    #[test]
    fn too_little_and_what_was_not_played_are_errors() {
        assert!(compare(&noise(RATE), &noise(100)).is_err());
        assert!(compare(&noise(RATE), &vec![7; 2 * RATE]).is_err());
    }
}
