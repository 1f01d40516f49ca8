"""Which words of a turn are the user's own: not what they quote or paste, and not what they say must not be."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, repr=False)
class Utterance:
    """A turn of the user's, taken apart.

    Attributes:
        own: what they say themselves, in parts that do not belong together.
        quoted: what they hand on of somebody else's.
    """

    own: list[str] = field(default_factory=list)
    quoted: list[str] = field(default_factory=list)


def utterance(text: str) -> Utterance:
    """Take a turn apart; what may be either is somebody else's. In time linear in its length."""
    found = Utterance()
    for part, is_quoted in _blocks(text.replace("\r\n", "\n").replace("\r", "\n")):
        if is_quoted:
            found.quoted.append(part)
        else:
            found.own.extend(_affirmed(part))
    return found


# Quoted and pasted blocks: fences, quoted lines, speech, and what runs over several lines between quotation marks.

_FENCE = re.compile(r"(`{3,}|~{3,}).*?(?:\1|\Z)", re.DOTALL)
_MARKUP = re.compile(r"<(blockquote|pre|code|q)\b[^<>]*>.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_QUOTED_LINES = re.compile(r"(?:^[ \t]{0,3}[>|\u2502\u2503][^\n]*(?:\n|\Z))+", re.MULTILINE)
_MARKS = (('"', '"'), ("\u201c", "\u201d"), ("\u201e", "\u201c\u201d"), ("\u00ab", "\u00bb"), ("\u00bb", "\u00ab"))
_BETWEEN = "|".join(f"{first}[^{first}{last}]*(?:[{last}]|\\Z)" for first, last in _MARKS)
_LINES_BETWEEN = "|".join(f"{first}[^{first}{last}\n]*\n[^{first}{last}]*[{last}]" for first, last in _MARKS)
_APOSTROPHES = r"(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w))*'(?!\w)"
_SAYS = r"(?:wrote|writes|says|said|reads|states|schrieb|schreibt|sagt|sagte|lautet|\u00e9crit|dit|escribi\u00f3|dice)"
_SPEECH = re.compile(
    rf"(?<![^\s,(]){_SAYS}\b(?:[^\n:\"\u201c\u201e\u00ab\u00bb]{{0,60}}:)?[\s,]{{0,9}}(?P<speech>{_BETWEEN}|{_APOSTROPHES})",
    re.IGNORECASE,
)
_LONG_QUOTE = re.compile(
    _LINES_BETWEEN + r"|(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w))*\n(?:[^']|(?<=\w)'(?=\w))*'(?!\w)", re.IGNORECASE
)

# Heads of mails, and other announcements of somebody else's text.

_SENDER = r"(?:from|von|de|da|van|fra|fr\u00e5n|od)"
_FIELD = (
    r"(?:to|cc|date|sent|subject|reply-to|an|gesendet|datum|betreff|\u00e0|objet|envoy\u00e9|para|asunto|fecha"
    r"|enviado|a|oggetto|inviato|data|aan|onderwerp)"
)
_HEAD = re.compile(
    rf"^[ \t>*_]{{0,9}}(?:{_SENDER}[*_]{{0,2}}[ \t]?:[^\n]*\n[ \t]*\n?[ \t>*_]{{0,9}}{_FIELD}[*_]{{0,2}}[ \t]?:"
    rf"|(?:{_FIELD}[*_]{{0,2}}[ \t]?:[^\n]*\n[ \t>*_]{{0,9}}){{1,6}}{_SENDER}[*_]{{0,2}}[ \t]?:)",
    re.MULTILINE | re.IGNORECASE,
)
_FORWARDED = re.compile(
    r"^[ \t>]{0,9}(?:[-_=*]{2}[^\n]{0,160}?"
    r"(?:forward|original|weitergeleitet|urspr\u00fcnglich|transf\u00e9r|reenviad|inoltrat)[^\n]*$"
    r"|(?:begin |anfang der )?(?:forwarded|weitergeleitete[n]?) (?:message|mail|e-mail|nachricht)\b[^\n]{0,80}:"
    r"|(?:on|am|le|el|il)\b[^\n]{4,160}?(?:\n[^\n]{0,80}?)?\b"
    r"(?:wrote|schrieb(?: [^\n:]{1,80})?|a \u00e9crit|escribi\u00f3|ha scritto)[ \t]?:[ \t]*$)",
    re.MULTILINE | re.IGNORECASE,
)
_TEXT = (
    r"(?:e-?mail|mail|message|letter|page|text|invoice|bill|note|chat|article|thread|conversation|document|website|post|"
    r"nachricht|brief|seite|rechnung|notiz|artikel|dokument|verlauf|courriel|lettre|facture|correo|mensaje|factura)"
)
_ANNOUNCED = re.compile(
    rf"^[^\n]{{0,160}}?(?:\b{_SAYS}\b[^\n:.]{{0,20}}"
    rf"|\b(?:here(?:'s| is| are)|below is|received|got|bekam|bekommen|erhalten|hier ist|voici|recib\u00ed)\b"
    rf"[^\n:]{{0,60}}\b{_TEXT}\b[^\n:]{{0,60}}"
    rf"|\b{_TEXT}\b[^\n:]{{0,20}}\b(?:received|got|below|bekam|bekommen|erhalten)\b[^\n:]{{0,20}}"
    r"):[ \t]*\n",
    re.MULTILINE | re.IGNORECASE,
)


def _blocks(text: str) -> Iterator[tuple[str, bool]]:
    """The parts of a text, and whether each is quoted; what is announced has no end mark, and takes all the rest."""
    starts = [found.start() for pattern in (_HEAD, _FORWARDED) if (found := pattern.search(text)) is not None]
    announced = _ANNOUNCED.search(text)
    end = min([*starts, *([announced.end()] if announced else [])], default=len(text))
    spans = [
        found.span() for pattern in (_FENCE, _MARKUP, _QUOTED_LINES, _LONG_QUOTE) for found in pattern.finditer(text)
    ]
    spans += [found.span("speech") for found in _SPEECH.finditer(text)]
    place = 0
    for start, stop in sorted(spans):
        if start >= end:
            break
        if stop <= place:
            continue
        if start > place:
            yield text[place:start], False
        yield text[max(start, place) : stop], True
        place = stop
    if place < end:
        yield text[place:end], False
    if max(place, end) < len(text):
        yield text[max(place, end) :], True


# Negation. What is said after a "never", up to the next clause that says something else, is nobody's; so is what
# stands before it where that is what it is about ("eve@... must not", and any German clause).

_SENTENCE = re.compile(r"[^\n;!?.]*(?:[.](?!\s|\Z)[^\n;!?.]*)*[\n;!?.]?")
_STATEMENT = (  # not a word about what should be done
    r"(?!\s+(?:forget|hesitate|fail|worry|mind|know|remember|have|see|only|just|sure|yet|vergessen|nur|z\u00f6gern"
    r"|oublie|mehr als|later|more|less|fewer|longer than|earlier)\b)"
)
_NEGATION = re.compile(
    r"(?<!\w)(?:(?:do|does|should|must|shall|may|need|would|could you|will you)(?:n['\u2019]t| not)"
    r"|you (?:cannot|can not|can['\u2019]t)"
    r"|no more(?=\s+(?:e-?mails?|mails?|messages?|money|payments?|transfers?|calls?)\b)"
    r"|dont|mustnt|shouldnt|never"
    r"|avoid|except(?: for)?|excluding|exclude|without|instead of|rather than|other than|apart from|anyone but"
    r"|everyone but|everybody but|anybody but|all but|but not|neither|nor|beware(?: of)?|skip|leave out|ignore"
    r"|(?:stop|refrain from|keep from|quit) \w+ing|under no circumstances|on no account|by no means|forbidden"
    r"|(?:is|are|isn['\u2019]t|aren['\u2019]t)(?: not)? (?:off[ -]limits|forbidden|banned|blocked)"
    r"|(?<!can )(?<!could )(?<!did )(?<!have )(?<!has )(?<!had )(?<!am )not|isn['\u2019]t|aren['\u2019]t|wasn['\u2019]t"
    r"|no(?=\s+(?:e-?mails?|mails?|messages?|money|payments?|transfers?|calls?|invites?|invitations?|copy|copies"
    r"|longer|need|way|circumstances|one|reply|replies|access)\b)"
    r"|nicht|nie|niemals|keine?[rnms]?|ohne|au\u00dfer|ausser|statt|anstatt|weder|keinesfalls|auf keinen fall"
    r"|bloss nicht|ne|n['\u2019](?=\w)|jamais|sans|sauf|pas|plut\u00f4t que"
    r"|nunca|jam\u00e1s|sin|excepto|non(?=\s)|senza|tranne"
    r"|no(?=\s+(?:escrib\w*|env\w*|mand\w*|pag\w*|llam\w*|a|le|lo|la|les)\b))" + _STATEMENT + r"(?!\w)",
    re.IGNORECASE,
)
_NOT_NEGATED = re.compile(  # "vergiss nicht", "not only", "why not"
    r"(?:vergiss|vergesst|vergessen sie|why|warum|wieso|pourquoi|if|ob|falls|wenn|whether or)\s+\Z", re.IGNORECASE
)
# It is about what stands before it, too.
_ABOUT_BEFORE = re.compile(
    r"(?:must|should|shall|may|need|would|do|does)(?:n['\u2019]t| not)|never|is|are|isn['\u2019]t|aren['\u2019]t|not"
    r"|forbidden|nicht|nie|niemals|keine?[rnms]?|keinesfalls|auf keinen fall|bloss nicht|jamais|pas|nunca",
    re.IGNORECASE,
)
_GERMAN = re.compile(r"nicht|nie|niemals|keine?[rnms]?|keinesfalls|auf keinen fall|bloss nicht", re.IGNORECASE)
_JOINT = re.compile(
    r"(?<!\w)(?:and|but|or|so|that|because|if|who|which|since|as|although|while|und|aber|oder|dass|weil|sondern|wenn"
    r"|da|et|mais|ou|que|y|pero|e|ma)(?!\w)|[,:(\u2013\u2014]",
    re.IGNORECASE,
)
_MENTION = re.compile(r"[\w.+'-]*@[\w.-]+|\w+(?:[.:/]+\w+)+\S*|\S*\d\S*|['\"\u201c\u201e`]\S+")
_PREPOSED = 3  # words that may stand before what a clause is about: "to", "the account"
_TITLE = re.compile(rf"{_APOSTROPHES}|\"[^\"]*\"|\u201c[^\u201c\u201d]*\u201d|`[^`]*`")
# Where what must not be ends: at a contrast, or where a new clause begins with a word of its own.
_KEEPS = (
    r"(?:to|at|an|her|his|their|my|our|your|the|a|from|via|with|or|nor|neither|not|even|also|any|anyone|of|for|on|in|by"
    r"|zu|von|mit|oder|noch|auch|der|die|das|den|dem|f\u00fcr|bei|ni|\u00e0|au|aux|ou|avec|de|o|u)"
)
_AFTERWARDS = re.compile(
    r"\)|(?<!\w)(?:but|instead|sondern|aber|stattdessen|mais|sino|pero|rather|only|nur)(?!\w)"
    rf"|(?P<comma>[,:\u2013\u2014])\s*(?:(?:and|then|und|dann|et|please|bitte)\s+)*(?!(?:and|und|et|then|please|bitte|{_KEEPS})\b)"
    r"(?=[a-z\u00df-\u00ff]+(?![\w@./-]))"
    r"|(?<!\w)(?:and|und|et|y)\s+(?:then\s+|please\s+|dann\s+|bitte\s+)?"
    r"(?=(?:do\s+)?(?:write|send|pay|mail|email|e-mail|call|book|transfer|forward|reply|invite|use|schreib\w*|sende?|zahle?|"
    r"\u00fcberweise?|ruf|buche?|nimm)\b(?!\s+(?:to\s+)?(?:nothing|nobody)))"
)


_EITHER = re.compile(r"(?<!\w)(?:or|nor|oder|noch|ou|ni)(?!\w)", re.IGNORECASE)


def _affirmed(text: str) -> Iterator[str]:
    """What is left of a text without what it says must not be."""
    place = 0
    for sentence in _SENTENCE.finditer(text):
        for start, end in _negated(sentence.group()):
            yield text[place : sentence.start() + start]
            place = sentence.start() + end
    yield text[place:]


def _negated(sentence: str) -> Iterator[tuple[int, int]]:
    """The parts of a sentence that say what must not be, in order; what is written in a title forbids nothing."""
    sentence = _TITLE.sub(lambda title: "'" * len(title.group()), sentence)
    either = max((found.start() for found in _EITHER.finditer(sentence)), default=-1)
    place = 0
    while (found := _NEGATION.search(sentence, place)) is not None:
        if _NOT_NEGATED.search(sentence, max(place, found.start() - 20), found.start()):
            start, end = None, found.end()
        else:
            start, end = _before(sentence, found, place), _until(sentence, found.end(), either)
        if start is not None:
            yield start, end
        place = max(end, found.end())


def _until(sentence: str, place: int, either: int) -> int:
    """Where that ends; a comma in "never this, that or the other" ends nothing."""
    for found in _AFTERWARDS.finditer(sentence, place):
        if found["comma"] is None or found.start() > either:
            return found.start()
    return len(sentence)


def _before(sentence: str, negation: re.Match[str], place: int) -> int:
    """Where that begins: at the negation, or at the clause's beginning, where that is what the negation is about."""
    if not _ABOUT_BEFORE.match(negation.group()):
        return negation.start()
    joints = [joint.end() for joint in _JOINT.finditer(sentence, place, negation.start())]
    mentions = list(_MENTION.finditer(sentence, place, negation.start()))
    if not mentions or (joints and joints[-1] > mentions[-1].start()):
        return negation.start()
    # "eve@... and mallory@... must not": a joint between two mentions joins these.
    clause = max((joint for joint in joints if joint <= mentions[0].start()), default=place)
    if _GERMAN.match(negation.group()) or len(sentence[clause : mentions[0].start()].split()) <= _PREPOSED:
        return clause
    return negation.start()
