//! `sctpify-router flows`: SCTP flows on the given interfaces, with their senders' advertisements and the limits on their rates.
//!
//! The command only captures packets, so it can run next to `sctpify-router run` or a router in the kernel. Begin at [`run`];
//! [`flow_table`] keeps the flows.

mod flow_table;
mod table;

use std::io::Write;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::Time;
use bridge::packet::Layout;
use bridge::{PreciseSleep, clock, finish};
use netio::{FRAMES_PER_CALL, FrameSocket};
use ops::{PageAnswer, Part};

use crate::args::FlowsArgs;
use crate::error::RouterError;
use crate::look::Look;
use crate::{page, signals};
use flow_table::FlowTable;

pub use flow_table::FlowRow;
pub(crate) use table::metrics;

/// Limit on the receive calls for one interface before the command reads the next interface.
const RECEIVES_PER_TURN: usize = 8;

/// Flows of the last report, which the page reads.
type Shared = Arc<Mutex<Arc<[FlowRow]>>>;

/// Listens until a signal arrives, or until the requested number of tables is printed.
///
/// # Errors
/// When an interface cannot be used, or the page's port is taken.
pub(crate) fn run(args: &FlowsArgs, json: bool, out: &mut dyn Write) -> Result<(), RouterError> {
    let stop = signals::stop()?;
    let places = std::iter::once(&args.first).chain(&args.others);
    let mut sockets = places.map(|place| place.listen()).collect::<Result<Vec<FrameSocket>, _>>()?;
    let shared = Shared::default();
    serve(args.metrics_port, &shared)?;
    let (mut flows, mut sleep) = (FlowTable::default(), PreciseSleep::default());
    let pause = Duration::from_secs(u64::from(args.every));
    let mut due = clock::now() + pause;
    let mut left = args.count.unwrap_or(u32::MAX);
    while left > 0 && !stop.load(Ordering::Relaxed) {
        listen(&mut sockets, &mut flows, &args.look())?;
        if clock::now() < due {
            wait(&mut sleep, &sockets, due)?;
            continue;
        }
        due = clock::now() + pause;
        let rows = flows.tick(clock::now());
        table::print(&rows, args.top, json, out)?;
        out.flush()?;
        *shared.lock().unwrap_or_else(PoisonError::into_inner) = rows.into();
        left = left.saturating_sub(u32::from(args.count.is_some()));
    }
    Ok(())
}

/// Sleeps until `due`, or until a frame arrives on one of the first two interfaces. Frames on the other interfaces do not end the
/// sleep.
fn wait(sleep: &mut PreciseSleep, sockets: &[FrameSocket], due: Time) -> Result<(), RouterError> {
    match sockets {
        [only] => sleep.until(due, [only.as_fd()]).map(|_| ())?,
        [one, other, ..] => sleep.until(due, [one.as_fd(), other.as_fd()]).map(|_| ())?,
        [] => {}
    }
    Ok(())
}

fn listen(sockets: &mut [FrameSocket], flows: &mut FlowTable, look: &Look) -> Result<(), RouterError> {
    for socket in sockets {
        for _ in 0..RECEIVES_PER_TURN {
            let took = socket.receive(|frame| {
                let at = clock::time_of(frame.seen_at);
                // A frame that cannot be split into packets holds no SCTP.
                let _ = finish(frame.bytes, frame.offload, |bytes| {
                    let layout = Layout::of(&bytes);
                    if let Some((from, to, packet)) = look.sctp(&bytes, &layout) {
                        flows.note(at, from, to, packet, layout.length, look.chunk_type);
                    }
                });
            });
            // Errors are ignored, because an interface that is down may come back.
            if !matches!(took, Ok(FRAMES_PER_CALL)) {
                break;
            }
        }
    }
    Ok(())
}

/// Serves the page, `/metrics` and `/flows.json` in a thread, if a port is given.
fn serve(port: Option<u16>, shared: &Shared) -> Result<(), RouterError> {
    let shared = shared.clone();
    let names = "/, /metrics and /flows.json (?search=TEXT&count=NUMBER&after=NEXT)";
    page::serve(port, names, page::FLOWS, move |request| {
        let rows = || shared.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match request.path() {
            "/metrics" => Some(PageAnswer::metrics(table::metrics(&rows()))),
            "/flows.json" => Some(match Part::of(request).and_then(|part| table::part(&rows(), &part)) {
                Ok(report) => PageAnswer::file("application/json", report.to_string()),
                Err(problem) => PageAnswer::text("400 Bad Request", problem),
            }),
            _ => None,
        }
    })
}
