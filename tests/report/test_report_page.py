from __future__ import annotations

import re
from html.parser import HTMLParser

from chase.report.html import render, report_run, write_report
from chase.report.runs import by_method, find_runs
from chase.report.sections import accuracy_section, classes_section, headline
from chase.report.style import Look, legend_shape

VOID = {"meta", "br", "img", "link", "hr", "input"}


class Reader(HTMLParser):
    """Collects ids, links and headings, and checks that every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href", "srcset", "action", "data"):
                self.links.append(value or "")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def headings(text: str) -> list[str]:
    return re.findall(r"<h2>(.*?)</h2>", text)


ALL = [
    "Summary",
    "Comparison",
    "Accuracy",
    "Epistemic variation and freezing",
    "Pools",
    "Cost",
    "Classes",
    "Clients after the last round",
    "What was asked",
    "Settings and versions",
]


def test_one_page_compares_many_runs_and_needs_nothing_from_outside(make_run):
    paths = [make_run("a", [0.1, 0.5, 0.6]), make_run("b", [0.3, 0.7, 0.8], seed=1)]
    paths.append(make_run("c", [0.2, None, 0.4], strategy="random"))
    text = render(find_runs(paths))
    page = Reader(text)
    assert page.open == []
    assert headings(text) == ALL
    assert len(page.ids) == len(set(page.ids)), "ids of figures must not clash"
    assert "http://" not in text
    assert "https://" not in text
    assert not page.tags & {"script", "link", "iframe", "object", "embed"}
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in page.links)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)
    assert not re.search(r"url\((?!#)", text)
    assert "@import" not in text


def test_figures_follow_the_ink_of_the_page(make_run):
    text = render(find_runs([make_run("a", [0.1, 0.5])]))
    assert "var(--ink)" in text
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text
    assert not re.search("#010203|#040506|#070809", text)
    assert text.count("<svg") == text.count('role="img"') >= 10


def test_names_are_escaped(make_run):
    text = render(find_runs([make_run("a", [0.1, 0.5], strategy="mine:<b>")]))
    assert "<b>" not in text
    assert "mine:&lt;b&gt;" in text
    assert "<zebra>" not in text


def test_class_names_of_any_kind_fit(make_run):
    run = find_runs([make_run("a", [0.1, 0.5])])[0]
    run.model["classes"] = ["\n", "US$ $x^", "猫"]
    section = classes_section(by_method([run]))
    assert section is not None
    assert "⏎" in section.body
    assert "US$ $x^" in section.body
    assert "猫" in section.body


def test_a_single_round_makes_a_page(make_run):
    assert headings(render(find_runs([make_run("a", [0.4])]))) == [title for title in ALL if title != "Comparison"]


def test_a_run_that_was_never_evaluated_makes_a_page_without_accuracy(make_run):
    text = render(find_runs([make_run("a", [None, None])]))
    assert headings(text) == [title for title in ALL if title not in ("Comparison", "Accuracy", "Classes")]


def test_runs_of_unequal_length_are_pointed_out(make_run):
    runs = find_runs([make_run("a", [0.1, 0.2]), make_run("b", [0.1], strategy="ev")])
    assert "Runs differ in their number of rounds" in headline(by_method(runs)).body
    assert "Runs differ in their number of rounds" not in headline(by_method(runs[:1])).body


def test_many_methods_many_classes_and_many_clients_fit(make_run):
    runs = find_runs([make_run(f"m{i}", [0.1, 0.2], strategy=f"a-method-with-a-long-name-{i}") for i in range(9)])
    for run in runs:
        for line in run.metrics:
            line["per_class"] = [0.5] * 62
            line["clients"] = {str(c): dict(line["clients"]["0"]) for c in range(100)}
        run.model["classes"] = [str(c) for c in range(62)]
        run.settings["clients"] = 100
    text = render(runs[:2])
    assert "62 classes, sorted" in text
    large = {"Clients after the last round": "Clients"}
    assert headings(text) == [large.get(title, title) for title in ALL]
    nine = accuracy_section(by_method(runs))
    assert nine is not None
    assert nine.body.count("a-method-with-a-long-name-8") == 4


def test_the_report_goes_into_the_run_directory(make_run):
    path = make_run("a", [0.4])
    assert report_run(path) == path / "report.html"
    assert (path / "report.html").read_text().startswith("<!doctype html>")
    assert report_run(make_run("b", [])) is None


def test_the_same_runs_give_the_same_page(make_run, tmp_path):
    runs = find_runs([make_run("a", [0.4, 0.5])])
    pages = [re.sub(r"\bf\d+-", "f-", write_report(runs, tmp_path / n).read_text()) for n in ("1.html", "2.html")]
    assert pages[0] == pages[1]


def test_every_series_looks_different():
    looks = {(look.colour, str(look.line), look.marker) for look in map(Look.of, range(60))}
    assert len(looks) == 60
    assert legend_shape(["one"]) == (1, 0)
    assert legend_shape(["short"] * 9)[1] >= 2


def test_what_is_no_markup_is_escaped_once():
    from chase.report.cells import Number, Spread
    from chase.report.markup import html_figure, html_table
    from chase.report.tables import ReportTable

    rows = [["<b>", Number(0.0001, 3, Spread(-1.0, 2.0, "interval"), least=0.001)]]
    table = html_table(ReportTable(("a & b", "p"), rows, "x < y"), note="<i>")
    assert "<caption>x &lt; y</caption>" in table
    assert '<td class="word">&lt;b&gt;</td>' in table
    assert '<td class="number">&lt; 0.001 <small>(-1.000 to 2.000)</small></td>' in table
    assert '<p class="note">&lt;i&gt;</p>' in table
    assert "a &amp; b" in table
    assert html_figure("<svg></svg>", "a & b").endswith("<h3>a &amp; b</h3></figcaption><svg></svg></figure>")
