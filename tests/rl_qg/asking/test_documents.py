"""The text of documents, and one clear line where there is none."""

import io
import re
import resource
import sys
import unicodedata
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from rl_qg.asking import documents
from rl_qg.asking.documents import read_document
from rl_qg.runtime.errors import InputError
from tests.processes import start

DOCUMENTS = Path(__file__).resolve().parents[2] / "documents"
HTML = """<!DOCTYPE html><html><head><title>No</title><style>p {}</style></head><body><nav>Menu</nav>
<h1>Ada <b>Love</b>lace</h1><p>She met<br>Babbage &amp; others.
 In   1833.</p><script>alert("no")</script><ul><li>One<li>Two</ul></body></html>"""


def pdf(lines: list[str], encrypt: str = "") -> bytes:
    """A PDF of one page with these lines, written by hand; encrypted by pypdf."""
    shown = " ".join(f"({line}) Tj 0 -12 Td" for line in lines)
    content = f"BT /F1 12 Tf 50 760 Td {shown} ET".encode()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding "
        b"<< /BaseEncoding /WinAnsiEncoding /Differences [1 /fi /fl] >> >>",
    ]
    body, places = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, text)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 6\n0000000000 65535 f \n%strailer << /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (
        table,
        len(body),
    )
    if not encrypt:
        return body + end
    pypdf = import_module("pypdf")
    writer, stream = pypdf.PdfWriter(pypdf.PdfReader(io.BytesIO(body + end))), io.BytesIO()
    writer.encrypt(encrypt, algorithm="RC4-128")
    writer.write(stream)
    return stream.getvalue()


def pdf_of_pages(*pages: list[str]) -> bytes:
    writer, stream = import_module("pypdf").PdfWriter(), io.BytesIO()
    for lines in pages:
        writer.append(io.BytesIO(pdf(lines)))
    writer.write(stream)
    return stream.getvalue()


def read(folder: Path, name: str, content: bytes | str) -> str:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    document = read_document(str(path))
    assert document.name == path.stem
    return document.text


def test_each_kind_of_document_gives_its_text(tmp_path: Path) -> None:
    assert read(tmp_path, "a.txt", "\ufeffAda\r\n\r\nRome é") == "Ada\n\nRome é"
    assert read(tmp_path, "b.html", HTML) == "Ada Lovelace\n\nShe met Babbage & others. In 1833.\n\nOne\n\nTwo"
    assert read(tmp_path, "c.MD", "# Ada\n\nShe *met*\n[Ben](http://x).\n\n- one\n- two\n") == (
        "Ada\n\nShe met Ben.\n\none\n\ntwo"
    )
    declared = '<meta charset="iso-8859-1"><p>Où?</p>'
    assert read(tmp_path, "d.htm", declared.encode("latin-1")) == "Où?"
    lines = ["Ada met Ben in the capi-", "tal of Italy. It was", "in 1833 and well-", "Known."]
    assert (
        read(tmp_path, "e.pdf", pdf(lines)) == "Ada met Ben in the capital of Italy. It was in 1833 and well- Known."
    )
    items = ["The council met and de-", "a\\) the first point of the list that it", "wrote"]
    assert read(tmp_path, "g.pdf", pdf(items)).startswith("The council met and de-\n\na) the first point")
    assert read(tmp_path, "f.pdf", pdf(["Open to all."], encrypt=" ")[:0] or pdf(["Open."])) == "Open."


WORDS = "office final affluent shuffled stop café Zürich naïve Ångström 12 Bern".split()
LIGATURES = {"ffl": "\ufb04", "ffi": "\ufb03", "ff": "\ufb00", "fi": "\ufb01", "fl": "\ufb02", "st": "\ufb06"}


def printed(word: str, ligatures: bool, decomposed: bool, place: int) -> str:
    """A word as printers write it, with a place at which it may be divided."""
    for letters, sign in LIGATURES.items() if ligatures else ():
        word = word.replace(letters, sign)
    word = f"{word[:place]}\xad{word[place:]}" if 0 < place < len(word) else word
    return unicodedata.normalize("NFD", word) if decomposed else word


@given(st.lists(st.tuples(st.sampled_from(WORDS), st.booleans(), st.booleans(), st.integers(0, 5)), min_size=1))
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_words_are_read_as_letters_however_they_are_printed(
    tmp_path: Path, drawn: list[tuple[str, bool, bool, int]]
) -> None:
    expected = " ".join(word for word, *_ in drawn)
    for name in ("a.txt", "a.md", "a.html"):
        assert read(tmp_path, name, " ".join(printed(*one) for one in drawn)) == expected


def test_soft_hyphens_divide_words_at_the_ends_of_lines(tmp_path: Path) -> None:
    lines = ["The \\001rst letter came from an inter\\255", "national of\\001ce, and it was de-", "\\001ned."]
    expected = "The first letter came from an international office, and it was defined."
    assert read(tmp_path, "a.pdf", pdf(lines)) == expected
    text = "\n".join(lines).replace("\\001", "\ufb01").replace("\\255", "\xad").replace("de-\n", "de\xad\n")
    assert read(tmp_path, "a.txt", text) == expected
    assert read(tmp_path, "b.txt", "Он жил в доме на бере\xad\nгу.") == "Он жил в доме на берегу."


def test_the_numbers_of_pages_are_no_text(tmp_path: Path) -> None:
    first, then = ["The bank was moved to the old", "11"], ["town of Bern, which it left in", "1955.", "12"]
    expected = "The bank was moved to the old town of Bern, which it left in 1955."
    assert read(tmp_path, "a.pdf", pdf_of_pages(first, then)) == expected
    assert read(tmp_path, "b.pdf", pdf(["1898"])) == "1898"
    year = "It left Bern in 1955 and closed in 1965."
    assert read(tmp_path, "c.pdf", pdf_of_pages(["It left Bern in", "1955"], ["and closed in", "1965."])) == year


def test_headers_and_footers_are_no_text(tmp_path: Path) -> None:
    bodies = [
        ["The bank was moved", "to the old"],
        ["town of Bern, which", "it left in"],
        ["1955. It closed", "in 1965."],
    ]
    expected = "The bank was moved to the old town of Bern, which it left in 1955. It closed in 1965."

    def text(name: str, *around: tuple[list[str], list[str]]) -> str:
        pages = zip(bodies, around, strict=True)
        found = read(tmp_path, name, pdf_of_pages(*(above + body + below for body, (above, below) in pages)))
        return " ".join(found.split())

    alike = ["Annals of Money, vol. 3", "(open access)"]
    assert text("a.pdf", *(([], [*alike, f"Page {page} of 12"]) for page in (7, 8, 9))) == expected
    assert text("b.pdf", *(([f"Ann Hill {page}"], ["Free"]) for page in (7, 8, 9))) == expected
    left, right = [f"Chapter 4: Banks {page}" for page in (7, 9)], "8 A history of Bern"
    assert text("c.pdf", ([left[0]], []), ([right], []), ([left[1]], [])) == expected.replace("old", f"old {right}")
    titled = text("d.pdf", *((alike, []) for _ in bodies))  # the first line of all may be the title
    assert titled == f"{' '.join(alike)} {expected}"
    pages = [[f"Word {number * number}", "and so on"] for number in range(9)]
    pages[1][1] = pages[6][1] = "He died in Rome."
    pages[2][0], pages[7][0] = "103 copies", "108 copies"
    far = read(tmp_path, "f.pdf", pdf_of_pages(*pages))
    assert far.count("He died in Rome.") == 2 and "103 copies" in far and "108 copies" in far
    alone = read(tmp_path, "g.pdf", pdf_of_pages(["Open: day 1"], ["Open: day 2"]))
    assert " ".join(alone.split()) == "Open: day 1 Open: day 2"
    other = text("e.pdf", (["In 1901 and 8"], []), (["In 1903 and 8 more"], []), (["In 1905"], []))
    assert "1901" in other and "1903" in other and "1905" in other


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ["It stood in 1889.", "Was it he?", "“It was!”", "(It was.)", "東京です。", "सच है।", "And…"]
            ),
            st.sampled_from(["", "[1]", "[12][3]", "[4, 5]", "[7–9]"]),
        ),
        min_size=1,
    )
)
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_marks_of_citations_end_no_sentence_late(tmp_path: Path, drawn: list[tuple[str, str]]) -> None:
    text, expected = " ".join(map("".join, drawn)), " ".join(one for one, _ in drawn)
    for name in ("a.txt", "a.html", "a.md"):
        assert read(tmp_path, name, text) == expected


@pytest.mark.parametrize(
    "code", ["x[1]", "f(x)[0]", '"a b"[1]', "rows[1][2]", "[1]", "a [1]", "It ends.[abc]", "n![2]", "f(1.)[0]"]
)
def test_brackets_of_code_stay(code: str, tmp_path: Path) -> None:
    assert read(tmp_path, "a.txt", f"Write {code} here.") == f"Write {code} here."


ADDRESS = """Mill Court
12 High Street

Dear Ms. Singh,

The boiler in our house has not worked since the 28th of August, and Mr.
Kowalczyk of your firm has not come back.
Section 3. Costs
(1) The landlord shall pay them, and he shall do so in full before the day
(2) that the council names.
"""


def test_lines_of_a_paragraph_are_joined_and_short_ones_stay_apart(tmp_path: Path) -> None:
    expected = (
        "Mill Court\n\n12 High Street\n\nDear Ms. Singh,\n\nThe boiler in our house has not worked since the 28th of "
        "August, and Mr. Kowalczyk of your firm has not come back.\n\nSection 3. Costs\n\n(1) The landlord shall pay "
        "them, and he shall do so in full before the day\n\n(2) that the council names."
    )
    assert read(tmp_path, "a.txt", ADDRESS) == expected
    assert read(tmp_path, "b.txt", ADDRESS.replace("\n", "\r\n")) == expected
    long = "One long line for each paragraph. " * 6
    assert read(tmp_path, "c.txt", f"{long}\n{long}") == f"{long.strip()}\n\n{long.strip()}"
    assert read(tmp_path, "d.txt", "東京は日本の首都であ\nる。人口は約千四百万人\nである。") == (
        "東京は日本の首都である。人口は約千四百万人である。"
    )


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (
            "<tr><td>Weight</td><td>2 <b>kg</b></td></tr><tr><td>In</td><td>Italy</td></tr>",
            "Weight: 2 kg.\n\nIn: Italy.",
        ),
        ("<tr><th>City</th><th>Men</th><th>Dogs</th></tr><tr><td>B</td><td>8</td><td></td></tr>", "City: B; Men: 8."),
        ("<tr><td>Vell</td><td>8</td><td>54</td></tr>", "Vell: 8; 54."),
        ("<tr><td>Vell<td>8<tr><td>Senn<td>9", "Vell: 8.\n\nSenn: 9."),
        ("<tr><td><p>A layout.</p></td><td><p>Two columns.</p></td></tr>", "A layout.\n\nTwo columns."),
    ],
)
def test_rows_of_a_table_are_sentences(rows: str, text: str, tmp_path: Path) -> None:
    assert read(tmp_path, "a.html", f"<table>{rows}</table>") == text


def test_of_a_page_its_main_part_is_read(tmp_path: Path) -> None:
    page = "<header>Site</header><div role=dialog>Cookies?</div><nav>Menu</nav>{}<aside>Shop</aside><footer>©</footer>"
    assert read(tmp_path, "a.html", page.format("<main><h1>Ada</h1><p>She wrote.</p></main>")) == "Ada\n\nShe wrote."
    assert read(tmp_path, "b.html", page.format("<main></main><p>Ada.</p>")) == "Site\n\nAda."
    shown = read_document(str(DOCUMENTS / "biography.html")).text
    assert shown.startswith("Adelheid Marchetti-Bloom (1868–1951)") and shown.endswith("Gardens of the Alps")
    assert not re.search("People A-Z|Advertisement|Privacy|Search", shown)


def test_what_a_page_hides_is_not_read(tmp_path: Path) -> None:
    hidden = "<p hidden>No</p><div style='color: red; Display : none'><p>No</p></div>"
    hidden += "<table><tr hidden><td>No</td><td>No</td></tr></table><h2><a class='headerlink' href='#a'>\n¶</a></h2>"
    formula = "<annotation encoding='application/x-tex'>{\\displaystyle E}</annotation>"
    page = "<body style='display:none'><p>It is {}<math><mi>E</mi>{}</math>{}.</p>{}"
    shown = page.format("<span style='display: none'>", formula, "</span>", hidden)
    assert read(tmp_path, "a.html", shown) == "It is E."
    tags = "See <a href='/t'>#<span>cats</span></a> and C<a href='/c'>#</a>, <a href='/5'>§</a> 5."
    assert read(tmp_path, "b.html", tags) == "See #cats and C#, § 5."


def test_metadata_of_markdown_are_no_text(tmp_path: Path) -> None:
    assert read(tmp_path, "a.md", "---\ntitle: No\ntags: [a]\n---\n# Ada\n\nShe wrote.\n") == "Ada\n\nShe wrote."
    for begin in ("\n", ""):
        text = f"---\n{begin}Ada: she wrote.\n\nShe did.\n\n---\n\nBen."
        assert read(tmp_path, "b.md", text) == "Ada: she wrote.\n\nShe did.\n\nBen."


def test_items_that_begin_with_a_dash_or_star_stay_apart(tmp_path: Path) -> None:
    for mark in "-*•":
        items = [f"{mark} a first one that is as long as the line that the second", f"{mark} is, which has few words"]
        assert read(tmp_path, "a.txt", "\n".join(items)) == "\n\n".join(items)
    assert read(tmp_path, "b.txt", "The temperature in that winter was\n-5 degrees.").endswith("was -5 degrees.")


def test_a_pdf_has_the_paragraphs_of_its_text(tmp_path: Path) -> None:
    """Of a story whose lines are set as in the text file; a PDF has no blank lines."""
    lines = (DOCUMENTS / "story.txt").read_text(encoding="utf-8").split("\n")
    story = read_document(str(DOCUMENTS / "story.txt")).text
    (tmp_path / "story.pdf").write_bytes(pdf([line for line in lines if line]))
    found = read_document(str(tmp_path / "story.pdf")).text
    assert found.split() == story.split()
    wanted, parts = set(story.split("\n\n")), set(found.split("\n\n"))
    assert len(wanted & parts) > len(wanted) / 2, wanted - parts  # a full last line of a paragraph does not tell


def test_every_document_has_whole_paragraphs() -> None:
    """Each paragraph begins as one: no line end within a sentence was taken for the end of a paragraph."""
    assert len(list(DOCUMENTS.iterdir())) == 10
    for path in sorted(DOCUMENTS.glob("*.txt")):
        for part in read_document(str(path)).text.split("\n\n"):
            assert "\n" not in part and not (part[0].islower() and not part.startswith("adopted")), (path, part)


def test_standard_input_is_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        buffer = io.BytesIO("Ada é".encode())

    monkeypatch.setattr(sys, "stdin", Stream())
    assert read_document("-") == documents.Document("stdin", "Ada é")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"O\xf9", r"a\.txt: not UTF-8 text \(byte 1\); save it as UTF-8"),
        ("a.txt", " \n", r"a\.txt: holds no text; give another document"),
        ("a.txt", b"a\0b", r"a\.txt: no text \(it has zero bytes\); save it as UTF-8"),
        ("a.md", b"\xff", r"a\.md: not UTF-8 text"),
        ("a.html", b"<p>O\xf9</p>", r"a\.html: not UTF-8 text \(byte 4\)"),
        ("a.html", b'<meta charset="no-such"><p>a</p>', r"a\.html: declares the unknown encoding 'no-such'"),
        ("a.html", b'<meta charset="punycode"><p>a</p>', r"a\.html: declares the unknown encoding 'punycode'"),
        ("a.html", b'<meta charset="utf-7"><p>+2AA-</p>', r"a\.html: declares the unknown encoding 'utf-7'"),
        ("a.html", b'<meta charset="UTF7"><p>a</p>', r"a\.html: declares the unknown encoding 'utf7'"),
        ("a.html", b'<meta charset="undefined"><p>a</p>', r"a\.html: declares the unknown encoding 'undefined'"),
        ("a.html", b'<meta charset="idna"><p>\xff</p>', r"a\.html: "),
        ("a.html", "<script>only()</script>", r"a\.html: holds no text"),
        ("a.pdf", b"%PDF-1.4\nrubbish", r"a\.pdf: no PDF that can be read \(.*\); save it again"),
        ("a.pdf", b"", r"a\.pdf: no PDF that can be read"),
        ("a.pdf", pdf([]), r"a\.pdf: no text in its 1 page, as in a scanned document; recognise its text first"),
        ("a.pdf", pdf(["secret"], encrypt="word"), r"a\.pdf: the PDF is encrypted; save it without a password"),
        ("a.docx", b"PK", r"a\.docx: unknown kind of document; give \.txt, .*\.pdf, or - for standard input"),
    ],
)
def test_what_cannot_be_read_is_one_line(name: str, content: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message) as error:
        read(tmp_path, name, content)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("name", "package"), [("a.pdf", "pypdf"), ("a.html", "lxml"), ("a.md", "markdown-it")])
def test_a_missing_library_is_one_line(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("pypdf", "lxml.etree", "markdown_it"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        InputError, match=rf'{package}.* is not installed; install it: pip install "rl-qg\[documents\]"'
    ):
        read(tmp_path, name, "<p>x</p>")


HOSTILE = (
    *(
        "<br>",
        "<![CDATA[",
        "<!--",
        "<!-- a -->",
        "<p>a",
        "<li>a",
        "<td>a",
        "<nav>x</nav>",
        "<a b='",
        '<a ="',
        "<a <a b ",
    ),
    *(
        "<a/",
        "</a",
        "<table><tr><th>a<th>b</table>",
        "<main></main>",
        "<b></p>",
        "<?",
        "&#1",
        "<div>a</div>",
        "<style>",
    ),
)
DEEP = ("<div>", "<table><tr><td>", "<b>a", "<aside>")


MARKDOWN = ("[", "![", "[a](", "| a | b |\n|---|---|\n", "| a ", "*", "> ", "- ", "`", "<a ", "# a\n", "![a][b]", "_a")


def read_in_cpu_seconds(path: str, seconds: int) -> None:
    """Exit with 0 where the document is read, with 3 where it is refused in one line; killed beyond the seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime) + seconds
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    try:
        read_document(path)
    except InputError as error:
        sys.exit(3 if "\n" not in str(error) else 1)


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "codes"), [(HOSTILE, {0, 3}), (DEEP, {3})])
def test_no_page_takes_quadratic_time(parts: tuple[str, ...], codes: set[int], tmp_path: Path) -> None:
    """Half a million characters of one part each; those that are nested without end are refused."""
    for part in parts:
        path = tmp_path / "a.html"
        path.write_text(part * (500_000 // len(part)))
        process = start(read_in_cpu_seconds, str(path), 5)
        assert process.wait(300) in codes, part


@pytest.mark.slow
def test_no_markdown_takes_quadratic_time(tmp_path: Path) -> None:
    """A quadratic reader of 100,000 characters of one part each would take much longer."""
    for part in MARKDOWN:
        path = tmp_path / "a.md"
        path.write_text(part * (100_000 // len(part)))
        process = start(read_in_cpu_seconds, str(path), 5)
        assert process.wait(300) in (0, 3), part


def test_elements_that_are_nested_without_end_are_one_line(tmp_path: Path) -> None:
    assert read(tmp_path, "a.html", "<div>" * 500 + "Ada." + "</div>" * 500) == "Ada."
    with pytest.raises(InputError, match=r"a\.html: its elements are nested too deeply to be read; give its text as"):
        read(tmp_path, "a.html", "<div>" * 5000 + "Ada.")


@pytest.mark.parametrize("kind", ["shared", "nested"])
def test_a_pdf_whose_pages_take_hours_is_refused_in_one_line(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred pages that share one content, and drawings that draw each other 10 ** 9 times."""
    monkeypatch.setattr(documents, "MOST_PDF_BYTES", 1_000_000 if kind == "shared" else 10**12)
    monkeypatch.setattr(documents, "MOST_PDF_STEPS", 1000)
    shared, nested = b"BT /F1 9 Tf (Ada.) Tj ET" + b" " * 100_000, b"/X Do " * 10
    pages, levels = (100, 0) if kind == "shared" else (1, 9)
    form = (
        b"<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</Font<</F1 3 0 R>>/XObject<</X %d 0 R>>>>/Length %d>>"
    )
    contents = [nested] * levels + [shared]
    first = 4 + pages
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count %d/Kids[%s]>>" % (pages, b" ".join(b"%d 0 R" % (4 + at) for at in range(pages))),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        *[
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents %d 0 R"
            b"/Resources<</Font<</F1 3 0 R>>/XObject<</X %d 0 R>>>>>>" % (first, first + 1)
        ]
        * pages,
        *[
            form % (first + at + 1, len(content)) + b"stream\n" + content + b"\nendstream"
            for at, content in enumerate(contents)
        ],
    ]
    body = b"%PDF-1.4\n" + b"".join(b"%d 0 obj\n%s\nendobj\n" % pair for pair in enumerate(objects, 1))
    end = b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n0\n%%%%EOF" % (len(objects) + 1)
    (tmp_path / "a.pdf").write_bytes(body + end)
    with pytest.raises(
        InputError, match=r"a\.pdf: its pages take too long to be drawn; give its text as a \.txt file"
    ):
        read_document(str(tmp_path / "a.pdf"))


@pytest.mark.parametrize(
    ("label", "codec", "text"),
    [
        ("iso-8859-1", "cp1252", "The café\u2019s owner said \u201cyes\u201d."),
        ("us-ascii", "cp1252", "It costs 5 \u20ac."),
        ("gb2312", "gb18030", "\u9555 is a character of GBK."),
        ("shift_jis", "cp932", "\u2460 and \u9ad9"),
        ("euc-kr", "cp949", "\ub625 is a syllable of CP949."),
    ],
)
def test_encodings_are_what_browsers_take_them_for(label: str, codec: str, text: str, tmp_path: Path) -> None:
    (page := tmp_path / "page.html").write_bytes(f'<meta charset="{label}"><p>{text}</p>'.encode(codec))
    assert read_document(str(page)).text == text
