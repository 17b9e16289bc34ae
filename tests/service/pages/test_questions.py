"""Questions on the pages: their budget, their price, and what an answer says."""

from __future__ import annotations

import html
import re
from pathlib import Path

from desks import QUESTIONS, make_service, work
from offices import Office

from dpstream.service.desk import Desk


def test_a_question_tells_its_price_and_its_answer_in_words(tmp_path: Path) -> None:
    """What is left for questions; decimals; the same question again is free; and what an easy answer is."""
    public = 'total = "public"'
    folder = make_service(
        tmp_path / "asked", steps=1, approve=False, mechanism=QUESTIONS, times=6, stream=public
    )
    desk = Desk.open(folder)
    desk.add_person(desk.operator("root"), "Ada", ["analyst"])
    work(desk)
    office = Office.served(folder)
    try:
        ada, question = office.client("Ada"), "zip = 'a'"
        for place in ("/", "/stream?stream=test"):
            page = ada.get(place).text
            assert re.search(r"questions have spent 0 of 1; [0-9]+ hard questions? left", page)
            assert 'class="spent" width="0.0"' in page
        page = ada.get("/ask", stream="test", question=question).text
        assert re.search(r"this question: at most [0-9.]+ more", page)
        assert re.search(r"[0-9]/[0-9]", html.unescape(re.sub("<[^>]*>", "", page))) is None
        assert ada.post("/ask", stream="test", question=question).status_code == 303
        work(desk)
        page = ada.get("/ask", stream="test", question=question).text
        assert "Asked already: free." in page
        assert re.search(r"[0-9.]+ % of the records", page)
        assert "Hard questions left: " in page
        assert "theory" not in page
        (done,) = desk.tasks(desk.operator("root"), "test")
        assert (done.state, done.why) == ("done", None)
        # The board tells what was spent, and a further question is priced anew.
        assert desk.price(desk.operator("root"), "test", "zip = 'b'").spent != "0"
    finally:
        office.close()
