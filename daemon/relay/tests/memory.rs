//! Compares the memory that a shared association counts with the count of the allocator.

mod ends;

use allocation_counter::measure;
use bytes::Bytes;
use ends::open_channel_to;
use relay::PPID_DATA;
use relay::mux::{Mux, Side};

/// Fills the window of a channel with messages of `size` bytes. Returns the bytes that the allocator provided, and the bytes that the
/// shared association counts.
fn taken_and_counted(window: usize, size: usize, is_slow: bool, looks: usize) -> (i64, i64) {
    let mut acceptor = Mux::new(Side::Acceptor);
    acceptor.set_spare(window);
    let (opener, theirs, mut mux, channel) = open_channel_to(acceptor);
    let stream = opener.stream(theirs).unwrap();
    let block = Bytes::from(vec![0; 65_536]);
    let deliver = |mux: &mut Mux, length: usize| {
        mux.on_message(stream, PPID_DATA, [block.slice(..length)], true).unwrap();
        while mux.poll_event().is_some() {}
    };
    let before = mux.memory();
    let taken = measure(|| {
        let mut left = window;
        if is_slow {
            deliver(&mut mux, 1);
            mux.keep(channel);
            left -= 1;
        }
        while left > 0 {
            deliver(&mut mux, size.min(left));
            left -= size.min(left);
        }
        (0..looks).for_each(|_| drop(mux.keep_what_waits()));
    });
    mux.check_invariants();
    assert!(looks < 2 || block.is_unique());
    (taken.bytes_current, (mux.memory() - before) as i64)
}

#[test]
fn waiting_data_takes_no_more_memory_than_is_counted() {
    for (window, size) in
        [16 << 10, 256 << 10].into_iter().flat_map(|w| [1, 100, 512, 1023, 1400, 4095].map(|s| (w, s)))
    {
        for (is_slow, looks) in [(false, 0), (false, 2), (true, 0)] {
            let (taken, counted) = taken_and_counted(window, size, is_slow, looks);
            let case = format!(
                "{window} bytes by {size}, slow {is_slow}, {looks} looks: {taken} taken, {counted} counted"
            );
            println!("{case}");
            assert!(taken <= counted && counted <= 2 * window as i64 + 16_384, "{case}");
        }
    }
}
