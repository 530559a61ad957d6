//! Divides long lists into parts, which a request selects by a search text, a start and a length.
//!
//! A program's other work waits while the program lists entries. Therefore, no more than [`LOOKED_AT_MAX`] entries are examined for one
//! part. The answer contains the position at which the next part begins. The caller assembles a whole list from pieces ([`Part::piece`]).
//! Texts may come from the network. Texts longer than [`TEXT_MAX`] bytes are therefore truncated in parts, but not in the pieces of a whole
//! list. Begin with [`Part::take`].

use serde::{Deserialize, Serialize};

use crate::page::PageRequest;

/// Limit on the rows in one answer.
pub const LISTED_MAX: usize = 100_000;
/// Limit on the entries examined for one part of a list.
pub const LOOKED_AT_MAX: usize = 5000;
/// Approximate number of rows in a piece of a whole list. The program's other work waits while a piece is collected, so pieces are short.
const PIECE_ROWS: usize = 250;
/// Limit on the length of a text in a part, in bytes; longer texts are truncated.
const TEXT_MAX: usize = 256;

/// The requested part of a list. The default value selects the whole list.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// Text that each row must contain, regardless of ASCII case.
    #[serde(default)]
    pub search: Option<String>,
    /// Position after which the part begins: [`ListPage::next`] of an earlier part.
    #[serde(default)]
    pub after: Option<String>,
    /// Approximate number of rows; `None` requests the whole list. The search examines up to [`LOOKED_AT_MAX`] entries, so it can return
    /// fewer rows than this number.
    #[serde(default)]
    pub count: Option<usize>,
    /// The part is a piece of a whole list, so its texts are not truncated.
    #[serde(skip)]
    pub is_piece: bool,
}

/// Selected rows of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListPage<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Number of rows beyond [`LISTED_MAX`] that are omitted from a whole list; 0 for a part.
    pub left_out: usize,
    /// Position after which the next part begins; `None` for a whole list and for the last part.
    pub next: Option<String>,
}

impl Part {
    /// Parses the query of a request: `?search=TEXT&count=NUMBER&after=NEXT`.
    ///
    /// # Errors
    /// If the count is not a number. The error shows a valid form.
    pub fn of(request: &PageRequest<'_>) -> Result<Part, String> {
        let number =
            |text: String| text.parse().map_err(|_| "count: expected a number, such as count=50".to_owned());
        let count = request.value("count").map(number).transpose()?;
        Ok(Part { search: request.value("search"), after: request.value("after"), count, is_piece: false })
    }

    /// Reports whether the whole list is requested.
    pub fn is_whole(&self) -> bool {
        self.count.is_none()
    }

    /// Returns the piece of a whole list that follows `after`.
    pub fn piece(&self, after: Option<String>) -> Part {
        Part { search: self.search.clone(), after, count: Some(PIECE_ROWS), is_piece: true }
    }

    /// Returns the position after which the part begins, in lists with numeric positions; `None` for the start of the list.
    ///
    /// # Errors
    /// If `after` is not a number. The error names the valid source of positions.
    pub fn number_after(&self) -> Result<Option<u64>, String> {
        let Some(after) = &self.after else { return Ok(None) };
        let problem = || {
            format!(
                "after: `{}` is not a position in this list: use the `next` of an answer",
                after.escape_debug()
            )
        };
        after.parse().map(Some).map_err(|_| problem())
    }

    /// Converts a text for display. In a part that is not a piece, truncates the text to [`TEXT_MAX`] bytes.
    pub fn text(&self, bytes: &[u8]) -> String {
        match bytes.get(..TEXT_MAX) {
            Some(begin) if self.count.is_some() && !self.is_piece && bytes.len() > TEXT_MAX => {
                String::from_utf8_lossy(begin).into_owned() + "…"
            }
            _ => String::from_utf8_lossy(bytes).into_owned(),
        }
    }

    /// Selects the rows of this part. `all` yields the entries that follow `after`, each with its position and its rows. `texts` returns
    /// the texts of a row, for the search. All rows of an entry stay in one part.
    pub fn take<T>(
        &self,
        all: impl Iterator<Item = (String, Vec<T>)>,
        texts: impl Fn(&T) -> Vec<String>,
    ) -> ListPage<T> {
        let search = self.search.as_ref().map(|search| search.to_ascii_lowercase());
        let is_wanted = |row: &T| {
            let Some(search) = &search else { return true };
            texts(row).iter().any(|text| text.to_ascii_lowercase().contains(search.as_str()))
        };
        let count = self.count.unwrap_or(LISTED_MAX).clamp(1, LISTED_MAX);
        let look_at = if self.count.is_some() { LOOKED_AT_MAX } else { usize::MAX };
        let mut taken = ListPage { rows: Vec::new(), left_out: 0, next: None };
        let mut all = all.enumerate().peekable();
        while let Some((before, (place, rows))) = all.next() {
            taken.rows.extend(rows.into_iter().filter(is_wanted));
            if taken.rows.len() >= count || before + 1 >= look_at {
                taken.next = all.peek().map(|_| place);
                break;
            }
        }
        if self.count.is_none() {
            let beyond = taken.rows.split_off(taken.rows.len().min(count)).len();
            let rest = all.map(|(_, (_, rows))| rows.iter().filter(|row| is_wanted(row)).count());
            (taken.left_out, taken.next) = (beyond + rest.sum::<usize>(), None);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `count` entries of one row each, numbered from 1.
    fn entries(count: usize) -> impl Iterator<Item = (String, Vec<usize>)> {
        (1..=count).map(|n| (n.to_string(), vec![n]))
    }

    fn part(search: &str, count: Option<usize>) -> Part {
        let search = Some(search.to_owned()).filter(|text| !text.is_empty());
        Part { search, count, ..Part::default() }
    }

    fn text(row: &usize) -> Vec<String> {
        vec!["row".to_owned(), format!("No{row}.")]
    }

    #[test]
    fn a_part_is_as_long_as_was_asked_for_and_tells_where_the_next_begins() {
        let taken = part("", Some(3)).take(entries(4), text);
        assert_eq!((taken.rows, taken.next.as_deref(), taken.left_out), (vec![1, 2, 3], Some("3"), 0));
        let last = part("", Some(3)).take(entries(3), text);
        assert_eq!((last.rows, last.next), (vec![1, 2, 3], None));
    }

    #[test]
    fn a_search_takes_no_heed_of_capital_letters_and_rests_after_so_many_entries() {
        let found = part("nO2", Some(3)).take(entries(25), text);
        assert_eq!((found.rows, found.next), (vec![2, 20, 21], Some("21".to_owned())));
        let none = part("other", Some(3)).take(entries(2 * LOOKED_AT_MAX), text);
        assert_eq!((none.rows, none.next), (Vec::new(), Some(LOOKED_AT_MAX.to_string())));
    }

    #[test]
    fn a_whole_list_tells_how_many_it_leaves_out() {
        let taken = part("", None).take(entries(LISTED_MAX + 7), text);
        assert_eq!((taken.rows.len(), taken.left_out, taken.next), (LISTED_MAX, 7, None));
        let few = part("no7", None).take(entries(LISTED_MAX), text);
        assert_eq!((few.rows[..2].to_vec(), few.left_out, few.next), (vec![7, 70], 0, None));
    }

    #[test]
    fn long_texts_are_truncated_in_parts_but_not_in_a_whole_list() {
        let long = [b'x'; TEXT_MAX + 1];
        assert_eq!(part("", Some(1)).text(&long).len(), TEXT_MAX + "…".len());
        assert_eq!(part("", Some(1)).text(&long[1..]).len(), TEXT_MAX);
        assert_eq!(part("", None).text(&long).len(), TEXT_MAX + 1);
        assert_eq!(part("", None).piece(None).text(&long).len(), TEXT_MAX + 1);
    }

    #[test]
    fn an_invalid_position_is_refused() {
        let part = Part { after: Some("<b>".to_owned()), ..Part::default() };
        assert!(part.number_after().unwrap_err().starts_with("after: `<b>` is not a position"));
    }
}
