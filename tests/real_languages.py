"""Human questions in several languages: a few written here in each script, and real ones where ../shared has them."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from rl_qg.data.formats import RawRecord
from rl_qg.data.reading import raw_records

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
FILES = {
    **{code: f"xquad/xquad.{code}.json" for code in "ar de el en es hi ro ru th tr vi zh".split()},
    "fr": "piaf/piaf-v1.0.json",
    "ja": "jaquad/jaquad_dev_0000.json",
    "ko": "korquad/KorQuAD_v1.0_dev.json",
}

WRITTEN = {
    "en": "Who built the old bridge over the river in 1902?",
    "de": "Wer hat im Jahr 1902 die alte Brücke über den Fluss gebaut?",
    "fr": "Qui a construit le vieux pont sur la rivière en 1902 ?",
    "es": "¿Quién construyó el viejo puente sobre el río en 1902?",
    "it": "Chi ha costruito il vecchio ponte sul fiume nel 1902?",
    "pt": "Quem construiu a velha ponte sobre o rio em 1902?",
    "ro": "Cine a construit podul vechi peste râu în anul 1902?",
    "nl": "Wie heeft in 1902 de oude brug over de rivier gebouwd?",
    "sv": "Vem byggde den gamla bron över floden och när var det?",
    "pl": "Kto zbudował stary most na rzece i kiedy to było?",
    "cs": "Kdo postavil starý most přes řeku a kdy to bylo?",
    "id": "Siapa yang membangun jembatan tua di atas sungai ini pada tahun 1902?",
    "tr": "Nehrin üzerindeki eski köprüyü 1902 yılında kim yaptı ve neden?",
    "vi": "Ai đã xây dựng cây cầu cũ bắc qua sông vào năm 1902?",
    "el": "Ποιος έχτισε την παλιά γέφυρα πάνω από το ποτάμι το 1902;",
    "ru": "Кто построил старый мост через реку в 1902 году?",
    "uk": "Хто побудував старий міст через річку і коли це було?",
    "ar": "من الذي بنى الجسر القديم فوق النهر في عام 1902؟",
    "fa": "چه کسی این پل را بر روی رودخانه ساخت و چرا؟",
    "hi": "नदी पर पुराना पुल किसने और कब बनाया था?",
    "th": "ใครเป็นผู้สร้างสะพานเก่าข้ามแม่น้ำในปี 1902",
    "zh": "谁在1902年建造了河上的那座旧桥？",
    "ja": "1902年に川に古い橋を架けたのは誰ですか",
    "ko": "1902년에 강 위에 오래된 다리를 지은 사람은 누구인가?",
}


@cache
def _records(code: str) -> Sequence[RawRecord]:
    found = [path for ending in ("", ".gz") if (path := DATA / f"{FILES[code]}{ending}").exists()]
    if not found:
        pytest.skip(f"real questions in this language (../shared/data/{FILES[code]}) are not here")
    return [record for record in raw_records(str(found[0]), "train") if record.answers and record.question]


def real_records(code: str, count: int) -> Sequence[RawRecord]:
    """So many questions, spread over the file; skips the test where the file is not here."""
    records = _records(code)
    return records[:: max(1, len(records) // count)][:count]
