//! Returns long lists part by part, with search terms, a start and a length.
//!
//! A program does little else while it lists, so a part examines no more than [`LOOKED_AT_MAX`] entries, and contains the start of
//! the next one. A whole list is joined from such parts ([`Part::piece`]). Texts of a part are cut at [`TEXT_MAX`] bytes, because
//! they may come from the network. Begin with [`Part::take`].

use serde::{Deserialize, Serialize};

use crate::page::PageRequest;

/// Limit on the rows in one answer.
pub const LISTED_MAX: usize = 100_000;
/// Limit on the entries examined for a part of a list.
pub const LOOKED_AT_MAX: usize = 5000;
/// Rows of a piece of a whole list: other work waits while they are gathered.
const PIECE_ROWS: usize = 250;
/// Length of the longest text of a part, in bytes.
const TEXT_MAX: usize = 256;

/// The requested part of a list; empty fields select all of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Part {
    /// Only rows that contain this text, regardless of case.
    #[serde(default)]
    pub search: Option<String>,
    /// Only entries after this one: [`ListPage::next`] of an earlier part.
    #[serde(default)]
    pub after: Option<String>,
    /// Approximate number of rows; the search examines up to [`LOOKED_AT_MAX`] entries.
    #[serde(default)]
    pub count: Option<usize>,
    /// Texts are not cut: it is a piece of a whole list.
    #[serde(skip)]
    pub is_piece: bool,
}

/// A page of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListPage<T> {
    /// The rows.
    pub rows: Vec<T>,
    /// Number of rows beyond [`LISTED_MAX`], for a whole list.
    pub left_out: usize,
    /// Start of the next part, if this is a part and not the last.
    pub next: Option<String>,
}

impl Part {
    /// Parses a query: `?search=TEXT&count=NUMBER&after=NEXT`.
    ///
    /// # Errors
    /// When the count is not a number; the text states the right form.
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

    /// Returns the number after which it begins, in lists with numeric positions.
    ///
    /// # Errors
    /// When `after` is not a number; the text states the right form.
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

    /// Returns the text as shown, cut if necessary.
    pub fn text(&self, bytes: &[u8]) -> String {
        match bytes.get(..TEXT_MAX) {
            Some(begin) if self.count.is_some() && !self.is_piece && bytes.len() > TEXT_MAX => {
                String::from_utf8_lossy(begin).into_owned() + "…"
            }
            _ => String::from_utf8_lossy(bytes).into_owned(),
        }
    }

    /// Takes the part. `all` holds the entries that follow `after`, each with its key in `after` and its rows; `texts` returns a
    /// row's texts for the search. The rows of an entry stay together.
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

    /// Returns `count` entries of one row each, by their numbers.
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
    fn long_texts_are_cut_in_parts_alone() {
        let long = [b'x'; TEXT_MAX + 1];
        assert_eq!(part("", Some(1)).text(&long).len(), TEXT_MAX + "…".len());
        assert_eq!(part("", Some(1)).text(&long[1..]).len(), TEXT_MAX);
        assert_eq!(part("", None).text(&long).len(), TEXT_MAX + 1);
        assert_eq!(part("", None).piece(None).text(&long).len(), TEXT_MAX + 1);
    }

    #[test]
    fn a_place_that_no_answer_told_is_refused() {
        let part = Part { after: Some("<b>".to_owned()), ..Part::default() };
        assert!(part.number_after().unwrap_err().starts_with("after: `<b>` is not a position"));
    }
}
