"""Runs tests of Python's own suite as `python3 -m unittest` would with the same words, and says of each by name how it ended:
"ok NAME", "not ok NAME", "skip NAME" on standard output. What the tests themselves print goes to standard error."""

import os
import sys
import unittest

names = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


class ByName(unittest.TextTestResult):
    def say(self, word, test):
        print(word, test.id(), file=names)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.say("ok", test)

    def addExpectedFailure(self, test, error):
        super().addExpectedFailure(test, error)
        self.say("ok", test)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.say("not ok", test)

    def addError(self, test, error):
        super().addError(test, error)
        self.say("not ok", test)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.say("not ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.say("skip", test)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.say("not ok", test)


class Runner(unittest.TextTestRunner):
    resultclass = ByName


unittest.main(module=None, testRunner=Runner)
