//! What a trunk says that it keeps, against what the allocator gave.

use allocation_counter::measure;
use bytes::Bytes;
use relay::PPID_DATA;
use relay::trunk::{LaneId, Side, Trunk};

fn pass(from: &mut Trunk, to: &mut Trunk) {
    while let Some((stream, ppid, bytes)) = from.next_out() {
        from.on_out_sent();
        to.on_message(stream, ppid, [bytes], true).unwrap();
    }
}

fn exchange(a: &mut Trunk, b: &mut Trunk) {
    while a.has_out() || b.has_out() {
        pass(a, b);
        pass(b, a);
    }
}

/// An end that has accepted a lane with such a window: it, the lane, and the lane's stream.
fn accepted(window: usize) -> (Trunk, LaneId, u16) {
    let (mut a, mut b) = (Trunk::new(Side::Initiator), Trunk::new(Side::Acceptor));
    b.set_spare(window);
    exchange(&mut a, &mut b);
    let lane = a.open("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:80".parse().unwrap()).unwrap();
    exchange(&mut a, &mut b);
    let (theirs, _) = b.poll_event().unwrap();
    b.accept(theirs);
    exchange(&mut a, &mut b);
    (b, theirs, a.stream(lane).unwrap())
}

/// What the lane takes, and what is counted, once its window is full of messages of `size` bytes.
fn taken_and_counted(window: usize, size: usize, is_slow: bool, looks: usize) -> (i64, i64) {
    let (mut trunk, lane, stream) = accepted(window);
    let block = Bytes::from(vec![0; 65_536]);
    let deliver = |trunk: &mut Trunk, length: usize| {
        trunk.on_message(stream, PPID_DATA, [block.slice(..length)], true).unwrap();
        while trunk.poll_event().is_some() {}
    };
    let before = trunk.memory();
    let taken = measure(|| {
        let mut left = window;
        if is_slow {
            deliver(&mut trunk, 1);
            trunk.keep(lane);
            left -= 1;
        }
        while left > 0 {
            deliver(&mut trunk, size.min(left));
            left -= size.min(left);
        }
        (0..looks).for_each(|_| drop(trunk.keep_what_waits()));
    });
    trunk.check_invariants();
    assert!(looks < 2 || block.is_unique());
    (taken.bytes_current, (trunk.memory() - before) as i64)
}

#[test]
fn what_waits_takes_no_more_than_is_counted_however_it_came() {
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
