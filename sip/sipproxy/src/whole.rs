//! Assembles whole lists from pieces. The loop handles messages between two pieces.
//!
//! Entries that move within the list between two pieces may be missing or duplicated. Invariant: up to [`LISTED_MAX`] rows and
//! [`BYTES_MAX`] bytes are kept, and the other rows are counted. Begin with [`whole`].

use std::io;

use ops::{LISTED_MAX, Part};
use serde::Serialize;

use crate::words::Answer;

/// Limit on the size of all rows as JSON, in bytes. It is half of [`ops::MAX_RESPONSE_BYTES`], the limit on an answer over the control
/// socket.
const BYTES_MAX: usize = 32 << 20;

/// Returns the whole list that `part` requests. `ask` makes the loop answer one piece.
///
/// # Errors
/// The errors of `ask`.
pub(crate) fn whole(part: &Part, mut ask: impl FnMut(Part) -> io::Result<Answer>) -> io::Result<Answer> {
    let mut piece = ask(part.piece(part.after.clone()))?;
    let Some(mut all) = empty_like(&piece) else { return Ok(piece) };
    let mut bytes = 0;
    while let Some(next) = join(&mut all, piece, &mut bytes) {
        piece = ask(part.piece(Some(next)))?;
    }
    Ok(all)
}

/// Creates an empty list of the same kind. Returns `None` if the answer is not a list.
fn empty_like(piece: &Answer) -> Option<Answer> {
    match piece {
        Answer::Contacts { .. } => Some(Answer::Contacts { contacts: Vec::new(), left_out: 0, next: None }),
        Answer::Dialogs { .. } => Some(Answer::Dialogs { dialogs: Vec::new(), left_out: 0, next: None }),
        Answer::Connections { .. } => {
            Some(Answer::Connections { connections: Vec::new(), left_out: 0, next: None })
        }
        _ => None,
    }
}

/// Appends a piece. Returns the start of the next piece, if there is one.
fn join(all: &mut Answer, piece: Answer, bytes: &mut usize) -> Option<String> {
    match (all, piece) {
        (Answer::Contacts { contacts, left_out, .. }, Answer::Contacts { contacts: more, next, .. }) => {
            *left_out += fill(contacts, more, bytes);
            next
        }
        (Answer::Dialogs { dialogs, left_out, .. }, Answer::Dialogs { dialogs: more, next, .. }) => {
            *left_out += fill(dialogs, more, bytes);
            next
        }
        (
            Answer::Connections { connections, left_out, .. },
            Answer::Connections { connections: more, next, .. },
        ) => {
            *left_out += fill(connections, more, bytes);
            next
        }
        // This does not occur, because the loop answers the same question with the same kind of list.
        _ => None,
    }
}

/// Appends rows while there is room for them. Returns the number of rows that were left out.
fn fill<T: Serialize>(rows: &mut Vec<T>, more: Vec<T>, bytes: &mut usize) -> usize {
    let mut left_out = 0;
    for row in more {
        *bytes += serde_json::to_vec(&row).map_or(0, |json| json.len());
        if rows.len() < LISTED_MAX && *bytes <= BYTES_MAX {
            rows.push(row);
        } else {
            left_out += 1;
        }
    }
    left_out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Contact;

    /// Builds a list of contacts with URIs of this length, in pieces of 1,000 rows.
    fn answer(part: &Part, users: usize, length: usize) -> Answer {
        let row = |n: usize| Contact {
            user: n.to_string(),
            uri: "x".repeat(length),
            expires_s: 1,
            transport: "udp".to_owned(),
            source: String::new(),
        };
        let first = part.number_after().unwrap().map_or(0, |after| after as usize + 1);
        let end = users.min(first + 1000);
        let next = (end < users).then(|| (end - 1).to_string());
        Answer::Contacts { contacts: (first..end).map(row).collect(), left_out: 0, next }
    }

    fn listed(users: usize, length: usize) -> (Vec<String>, usize) {
        let all = whole(&Part::default(), |part| {
            assert!(part.is_piece && !part.is_whole());
            Ok(answer(&part, users, length))
        });
        let Answer::Contacts { contacts, left_out, next: None } = all.unwrap() else {
            panic!("no whole list")
        };
        (contacts.into_iter().map(|contact| contact.user).collect(), left_out)
    }

    #[test]
    fn all_pieces_are_one_list_in_their_order() {
        let (users, left_out) = listed(2500, 0);
        assert_eq!((users, left_out), ((0..2500).map(|n| n.to_string()).collect(), 0));
    }

    #[test]
    fn users_beyond_the_bounds_are_counted() {
        let (users, left_out) = listed(LISTED_MAX + 7, 0);
        assert_eq!((users.len(), left_out), (LISTED_MAX, 7));
        let (users, left_out) = listed(1500, 60_000);
        assert!(users.len() < BYTES_MAX / 60_000 && users.len() + left_out == 1500, "{left_out}");
    }

    #[test]
    fn a_refusal_is_returned_in_place_of_the_list() {
        let refused = || Answer::Refused { reason: "no place".to_owned() };
        assert_eq!(whole(&Part::default(), |_| Ok(refused())).unwrap(), refused());
    }
}
