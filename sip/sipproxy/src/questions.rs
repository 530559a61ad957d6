//! Limits the rate of questions from the control socket and the page, so the event loop keeps time for messages.
//!
//! After an answer, the next question waits [`REST`] times as long as the answer took. All clients together therefore get up to a tenth of
//! the loop's time. Invariant: the loop answers up to one question per turn, after the messages of the turn. Begin with [`Questions::look`]
//! and [`Questions::next`].

use std::sync::mpsc::Receiver;
use std::time::Duration;

use base::Time;

use crate::control_socket::Asked;

/// Pause after an answer, as a multiple of the time that the answer took.
const REST: u32 = 9;
/// Limit on the pause after an answer. A very long answer means that the machine was suspended, and not that the loop was busy.
const REST_MAX: Duration = Duration::from_millis(200);

/// Questions that wait for the event loop.
pub(crate) struct Questions {
    asked: Receiver<Asked>,
    /// Next question to answer, already taken from the queue.
    first: Option<Asked>,
    rest_until: Time,
}

impl Questions {
    /// Creates an instance that takes its questions from this queue.
    pub(crate) fn new(asked: Receiver<Asked>) -> Questions {
        Questions { asked, first: None, rest_until: Time::ZERO }
    }

    /// Takes a question from the queue, unless the next question is already known.
    pub(crate) fn look(&mut self) {
        if self.first.is_none() {
            self.first = self.asked.try_recv().ok();
        }
    }

    /// Returns the time at which the next question is due, or never if no question waits.
    pub(crate) fn next_timeout(&self) -> Time {
        if self.first.is_some() { self.rest_until } else { Time::NEVER }
    }

    /// Takes the next question, if it is due.
    pub(crate) fn next(&mut self, now: Time) -> Option<Asked> {
        if now < self.rest_until {
            return None;
        }
        self.first.take()
    }

    /// Records the time that an answer took, and looks for the next question.
    pub(crate) fn answered(&mut self, began: Time, ended: Time) {
        self.rest_until = ended + (ended.since(began) * REST).min(REST_MAX);
        self.look();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{SyncSender, sync_channel};

    use super::*;
    use crate::control_socket::ASKED_MAX;
    use crate::words::Question;

    fn questions() -> (SyncSender<Asked>, Questions) {
        let (to_loop, asked) = sync_channel(ASKED_MAX);
        (to_loop, Questions::new(asked))
    }

    fn ask(to_loop: &SyncSender<Asked>) {
        to_loop.try_send(Asked::Look(Question::Status, sync_channel(1).0)).unwrap();
    }

    fn ms(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    #[test]
    fn each_turn_answers_one_question_and_the_next_waits_nine_times_its_duration() {
        let (to_loop, mut questions) = questions();
        (0..2).for_each(|_| ask(&to_loop));
        questions.look();
        assert_eq!(questions.next_timeout(), Time::ZERO);
        assert!(questions.next(ms(100)).is_some() && questions.next(ms(100)).is_none());
        questions.answered(ms(100), ms(102));
        // One wake-up of the loop may announce both questions, so the second one becomes due without another wake-up.
        assert_eq!(questions.next_timeout(), ms(120));
        assert!(questions.next(ms(119)).is_none() && questions.next(ms(120)).is_some());
        questions.answered(ms(120), ms(120));
        assert_eq!(questions.next_timeout(), Time::NEVER);
    }

    #[test]
    fn continuous_questions_get_a_tenth_of_the_time() {
        let (to_loop, mut questions) = questions();
        ask(&to_loop);
        questions.look();
        let (mut now, mut busy_ms) = (Time::ZERO, 0);
        while now < ms(1000) {
            match questions.next(now) {
                Some(_) => {
                    busy_ms += 1;
                    ask(&to_loop);
                    questions.answered(now, now + Duration::from_millis(1));
                    now += Duration::from_millis(1);
                }
                None => now = questions.next_timeout(),
            }
        }
        assert_eq!(busy_ms, 100);
    }

    #[test]
    fn the_wait_after_a_very_slow_answer_is_limited_to_200_ms() {
        let (to_loop, mut questions) = questions();
        ask(&to_loop);
        questions.answered(Time::ZERO, ms(60_000));
        assert_eq!(questions.next_timeout(), ms(60_200));
    }
}
