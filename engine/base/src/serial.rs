//! Serial number arithmetic (RFC 1982), which compares TSNs, SSNs and other numbers that wrap.

/// Defines a serial number type over an unsigned integer.
///
/// The type has no `Ord`, because `<` is wrong for numbers that wrap. Use `is_after` and the other
/// comparisons. These comparisons are correct if the two numbers are less than half the number space
/// apart.
#[macro_export]
macro_rules! serial_number {
    ($(#[$doc:meta])* $name:ident($int:ty), signed $signed:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
        pub struct $name(pub $int);

        impl $name {
            /// Returns the number after this one.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.wrapping_add(1))
            }

            /// Returns the number before this one.
            #[must_use]
            pub const fn prev(self) -> Self {
                Self(self.0.wrapping_sub(1))
            }

            /// Returns this number plus `n`, modulo the number space.
            #[must_use]
            pub const fn plus(self, n: $int) -> Self {
                Self(self.0.wrapping_add(n))
            }

            /// Reports whether this number comes later than `other`.
            //= rfc9260#1.6-2 1.6-5
            //= rfc5061#3-1 3-2
            //= rfc9260#1.6-2 1.6-5
            pub const fn is_after(self, other: Self) -> bool {
                (self.0.wrapping_sub(other.0) as $signed) > 0
            }

            /// Reports whether this number is `other` or later.
            pub const fn is_at_or_after(self, other: Self) -> bool {
                (self.0.wrapping_sub(other.0) as $signed) >= 0
            }

            /// Reports whether this number comes before `other`.
            pub const fn is_before(self, other: Self) -> bool {
                other.is_after(self)
            }

            /// Reports whether this number is `other` or earlier.
            pub const fn is_at_or_before(self, other: Self) -> bool {
                other.is_at_or_after(self)
            }

            /// Returns the distance from this number to `later`, modulo the number space.
            pub const fn distance_to(self, later: Self) -> $int {
                later.0.wrapping_sub(self.0)
            }
        }
    };
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macro makes public methods, whoever uses it")]
mod tests {
    serial_number!(
        /// An 8-bit number, so a test can try every pair.
        Small(u8), signed i8
    );

    #[test]
    fn every_number_is_after_its_127_predecessors_and_before_its_127_successors() {
        for a in 0..=255u8 {
            for d in 1..=127u8 {
                assert!(Small(a).plus(d).is_after(Small(a)));
                assert!(Small(a).is_before(Small(a).plus(d)));
                assert!(!Small(a).is_at_or_after(Small(a).plus(d)));
                assert!(Small(a).is_at_or_before(Small(a).plus(d)));
                assert_eq!(Small(a).distance_to(Small(a).plus(d)), d);
            }
            assert!(Small(a).is_at_or_after(Small(a)) && !Small(a).is_after(Small(a)));
            assert_eq!(Small(a).next().prev(), Small(a));
        }
    }
}
