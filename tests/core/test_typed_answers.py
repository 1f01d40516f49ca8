"""Answers typed at a real terminal: none that was typed before its question was on display."""

from __future__ import annotations

import asyncio
import os
import re
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TextIO

import pytest

from guarded_core import ApprovalRejected, ConsoleApprover, Guard, HumanApprovalRequired, ToolExecutionPolicy
from guarded_core.approvals import typed
from guarded_core.rules.kinds import RequireApproval

pty = pytest.importorskip("pty")


class Terminal:
    """A pseudo-terminal with a person at it, who reads what is on display."""

    def __init__(self) -> None:
        self.person, self._end = pty.openpty()
        self.read: TextIO = os.fdopen(os.dup(self._end), "r")
        self.write: TextIO = os.fdopen(os.dup(self._end), "w")
        self.screen = ""
        self._has_left = threading.Event()
        self._reader = threading.Thread(target=self._look, daemon=True)
        self._reader.start()

    def _look(self) -> None:
        # With a look at whether to go on: a read that outlives its file would take another terminal's text.
        while not self._has_left.is_set():
            if select.select([self.person], [], [], 0.02)[0]:
                try:
                    self.screen += os.read(self.person, 4096).decode(errors="replace")
                except OSError:
                    return

    def type(self, text: str) -> None:
        """Type, as fast as a paste."""
        os.write(self.person, text.encode())

    def wait_for(self, pattern: str, after: int = 0) -> re.Match[str]:
        """The next place on the screen that matches."""
        until = time.monotonic() + 20
        while time.monotonic() < until:
            if found := re.compile(pattern).search(self.screen, after):
                time.sleep(0.05)  # a person is not faster, and the terminal has discarded what it had
                return found
            time.sleep(0.005)
        raise AssertionError(f"{pattern} was never shown in {self.screen}")

    def close(self) -> None:
        """Leave: the terminal hangs up, and whoever still reads from it comes to its end."""
        self._has_left.set()
        self._reader.join()
        os.close(self.person)
        for stream in (self.write, self.read):
            with suppress(OSError):
                stream.close()
        os.close(self._end)


CODE = r"Type (\w{4}) for yes"


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    """A terminal of one's own."""
    found = Terminal()
    yield found
    found.close()


def make_guard(terminal: Terminal, ran: list[int], risk: str = "financial") -> Guard:
    """A guard with `pay`, which asks at the terminal whatever its risk."""
    policy = ToolExecutionPolicy({"pay": risk}, rules=[RequireApproval(tool="pay")])
    guard = Guard(policy, approver=ConsoleApprover("lee", read=terminal.read, write=terminal.write))

    @guard.tool
    def pay(cents: int) -> str:
        """Pay."""
        ran.append(cents)
        return "paid"

    return guard


def called(guard: Guard, cents: int) -> tuple[threading.Thread, list[Any]]:
    """A call under way in a thread, and what comes of it."""
    outcome: list[Any] = []

    def call() -> None:
        try:
            with guard.session("user-17", tools=["pay"]):
                outcome.append(guard.call("pay", {"cents": cents}))
        except (ApprovalRejected, HumanApprovalRequired) as error:
            outcome.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread, outcome


@pytest.mark.parametrize("risk", ["financial", "destructive", "mutating"])
@pytest.mark.parametrize("ahead", ["y\n", "y\n\n", "yes\ny\ny\n", "y\nfine, I checked:\ny\n- customer 7\ny\n" * 20])
def test_what_was_typed_before_never_answers(terminal: Terminal, risk: str, ahead: str) -> None:
    """Lines that wait at the terminal when a question is drawn are discarded: it waits for an answer of its own."""
    ran: list[int] = []
    guard = make_guard(terminal, ran, risk)
    terminal.type(ahead)
    time.sleep(0.05)
    thread, outcome = called(guard, 999_900)
    prompt = terminal.wait_for(CODE if risk != "mutating" else r"approve this call\? \[y/N\]")
    time.sleep(0.2)
    assert thread.is_alive()
    assert not ran
    terminal.type(f"{prompt[1] if risk != 'mutating' else 'y'}\nticket 7\n")
    thread.join(20)
    assert outcome == ["paid"]
    assert guard.audit.events[-2].approval_reason == "ticket 7"


def test_the_rest_of_a_pasted_reason_never_answers_the_next_question(terminal: Terminal) -> None:
    """A reason of several lines answers one question; the next one is asked, with a code of its own."""
    ran: list[int] = []
    guard = make_guard(terminal, ran)
    first, said = called(guard, 5)
    code = terminal.wait_for(CODE)
    terminal.type(f"{code[1]}\nfine, I checked:\n{code[1]}\ny\n- customer 7\n{code[1]}\n")
    first.join(20)
    assert said == ["paid"]
    shown = len(terminal.screen)
    second, said = called(guard, 999_900)
    other = terminal.wait_for(CODE, shown)
    assert other[1] != code[1]
    time.sleep(0.2)
    assert ran == [5]
    terminal.type("n\nnot that much\n")
    second.join(20)
    assert isinstance(said[0], ApprovalRejected)
    assert said[0].reason == "not that much"
    assert ran == [5]


def test_a_paste_that_arrives_after_the_question_has_no_code(terminal: Terminal) -> None:
    """What goes on arriving while a dangerous question stands there does not hold its code."""
    ran: list[int] = []
    guard = make_guard(terminal, ran)
    thread, outcome = called(guard, 999_900)
    for turn in range(3):
        terminal.wait_for("(?s)" + ".*".join([CODE] * (turn + 1)))
        terminal.type("y\n")
    thread.join(20)
    assert isinstance(outcome[0], HumanApprovalRequired)
    assert len(set(re.findall(CODE, terminal.screen))) == 3
    assert not ran


@pytest.mark.parametrize(("typed_", "ran_"), [("{code}", True), ("{CODE}", True), ("x{code}", False), ("", False)])
def test_the_code_and_nothing_else_is_yes(terminal: Terminal, typed_: str, ran_: bool) -> None:
    """The code approves, in either case; anything else but a plain yes rejects."""
    ran: list[int] = []
    thread, outcome = called(make_guard(terminal, ran), 7)
    code = terminal.wait_for(CODE)[1]
    terminal.type(typed_.format(code=code, CODE=code.upper()) + "\n\n")
    thread.join(20)
    assert ran == [7] * ran_
    assert ran_ or isinstance(outcome[0], ApprovalRejected)


def test_codes_are_random(monkeypatch: pytest.MonkeyPatch) -> None:
    """A code has four characters of which no two look alike, and comes from the system's randomness."""
    codes = {typed.new_code() for _ in range(1000)}
    assert len(codes) > 990
    assert all(re.fullmatch(r"[a-hjkmnp-z2-9]{4}", code) for code in codes)
    monkeypatch.setattr("secrets.choice", lambda letters: letters[0])
    assert typed.new_code() == "aaaa"


def test_a_long_text_is_unfolded_where_that_is_asked_for(terminal: Terminal) -> None:
    """`all` shows the question again with nothing folded, and asks again."""
    guard = Guard(
        ToolExecutionPolicy({"mail": "destructive"}),
        approver=ConsoleApprover("lee", read=terminal.read, write=terminal.write),
    )

    @guard.tool
    def mail(body: str) -> str:
        """Mail."""
        return "sent"

    outcome: list[Any] = []

    def call() -> None:
        with guard.session("user-17", tools=["mail"]):
            outcome.append(guard.call("mail", {"body": "a" * 2000 + "HIDDEN" + "b" * 2000}))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    first = terminal.wait_for(CODE)
    assert "HIDDEN" not in re.sub(r"\s*⤷ ", "", terminal.screen)
    terminal.type("all\n")
    second = terminal.wait_for(CODE, first.end())
    assert "HIDDEN" in re.sub(r"\s*⤷ ", "", terminal.screen)
    terminal.type(f"{second[1]}\n\n")
    thread.join(20)
    assert outcome == ["sent"]


def test_questions_wait_for_their_turn_and_hold_no_thread(terminal: Terminal) -> None:
    """Under asyncio a hundred questions wait for one terminal; what is approved runs at once."""
    ran: list[int] = []
    guard = make_guard(terminal, ran)

    async def pay(number: int) -> Any:
        with guard.session(f"user-{number}", tools=["pay"]):
            return await guard.acall("pay", {"cents": number})

    async def main() -> None:
        tasks = [asyncio.ensure_future(pay(number)) for number in range(100)]
        code = await asyncio.to_thread(terminal.wait_for, CODE)
        assert threading.active_count() < 60
        terminal.type(f"{code[1]}\n\n")
        await asyncio.to_thread(terminal.wait_for, CODE, code.end())
        while not ran:
            await asyncio.sleep(0.01)
        assert sum(task.done() for task in tasks) == 1
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        terminal.type("n\n\n" * 2)

    asyncio.run(main())
    assert len(ran) == 1


def test_rows_fit_the_terminal(terminal: Terminal) -> None:
    """The drawing is as wide as the terminal, so that it wraps no line by itself."""
    import fcntl
    import struct
    import termios

    wait: Callable[[str], Any] = terminal.wait_for
    fcntl.ioctl(terminal.write.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    guard = Guard(
        ToolExecutionPolicy({"mail": "destructive"}),
        approver=ConsoleApprover("lee", read=terminal.read, write=terminal.write),
    )
    guard.tool(name="mail", description="Mail.")(_mail)
    thread = threading.Thread(target=_call_mail, args=(guard,), daemon=True)
    thread.start()
    wait(CODE)
    payload = terminal.screen[terminal.screen.index("{") : terminal.screen.index("}")]
    assert max(map(len, payload.splitlines())) == 49
    terminal.type("n\n\n")
    thread.join(20)


def _mail(body: str) -> str:
    return "sent"


def _call_mail(guard: Guard) -> None:
    with guard.session("user-17", tools=["mail"]), pytest.raises(ApprovalRejected):
        guard.call("mail", {"body": "x" * 500})
