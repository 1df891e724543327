"""Languages and scripts: which one a text is in, and the rules that filters, answers and metrics take from it.

A language is named by its code (ISO 639-1), such as `de`. `LANGUAGES` are those of which something is known; rules
that are not known are left out, and whoever leaves them out says so. Two words stand for no language: `AUTO` (find
out which it is) and `OTHER` (one without rules).
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import groupby

from rewards.words import is_unspaced, lower, separate_unspaced
from rl_qg.text.words import contains_words, normalised_words, word_count

# Words by which languages are told apart and questions recognised, and those that answers begin, end or count with.
#
# All in lower case, by the language's code (ISO 639-1). A `*` ends the beginning of a word: `како*` stands for all its
# cases. The lists are short on purpose: the commonest words of running text, and all usual question words.


FUNCTION_WORDS: Mapping[str, str] = {
    "en": "a were they he she into than during between after before also when the of and to in is was for that "
    "with as by on are which what who when how did does were from at it an this be has had not or but their "
    "its his her",
    "de": "der die das und ist in den von zu mit dem des im ein eine einer eines einem einen auf für als auch sich "
    "nicht wurde wurden war waren wie was wer welche welcher welches wo wann warum bei nach aus zum zur dass "
    "oder sind hat durch über es sie er werden kann",
    "fr": "le la les de des du et est en un une dans que qui pour par sur au aux avec ce cette il elle ils ne pas "
    "plus quel quelle quels quelles où comment son sa ses était d l qu ou sont été se leur entre comme",
    "es": "el la los las de del y en que un una unos unas es por con para se su sus al como qué cuál quién cuándo "
    "dónde cuántos fue más lo era son o no entre ha sobre desde este esta también",
    "it": "il lo la i gli le di del della dei delle dell e che in un una è per con si al alla da dal nel nella "
    "come quale quali chi quando dove quanti sono era l non più o su fu anche",
    "pt": "o a os as de do da dos das e que em um uma no na nos nas é para com por se ao à como qual quais quem "
    "quando onde quantos foi mais são era não ou pelo pela seu sua",
    "ro": "și de în a la cu din pe care este un o ce nu sunt al ale să mai fost pentru cine când unde cum câte "
    "câți lui era după într dintre prin ca se au sau unei unui fi",
    "nl": "de het een van en in is dat op te zijn met voor die aan door wat wie welke waar wanneer hoe werd was er "
    "om als niet naar bij ook of deze tot",
    "sv": "och i att det som en på är av för med till den var har de inte ett om vad vem vilken vilket när hur "
    "från vid eller också",
    "pl": "w i na z do się nie to jest że o jak po od za przez co kto gdzie kiedy ile który która które był była "
    "oraz dla są lub jego przy",
    "cs": "a v se na je že o s z do i to jako který která které byl byla bylo co kdo kde kdy kolik pro ale od po "
    "nebo jsou při",
    "id": "yang dan di dari untuk pada dengan adalah ini itu dalam tidak oleh apa siapa kapan mana bagaimana "
    "berapa ke sebagai atau telah",
    "tr": "ve bir bu için ile olarak da de en ne hangi kim nerede nasıl kaç olan daha çok gibi sonra kadar olduğu "
    "nedir mi mı mu mü kimdir zaman göre ilk tarafından neden veya ya ki o her ancak ise",
    "vi": "của và là các trong có được cho những một với không đã ở người năm gì nào ai khi đâu bao nhiêu tại từ "
    "đến này theo thế để như về ông vào trên bởi cũng nhiều hoặc bị ra mà sự họ nó vì do",
    "el": "και το η ο του της την των στο στη στην από με για που να οι τα τον τους είναι ήταν σε ένα μια ένας ως "
    "τι ποιος ποια ποιο δεν ή στα στις στους κατά θα αυτό μετά όπως έχει",
    "ru": "и в на не что с по как из к от для это был была было были его ее её за при до о об у а но или который "
    "которые также со во их он она они же более",
    "uk": "і в на не що з по як із до від для це був була було були його її за при про у а але або який які також "
    "та є",
    "ar": "في من على إلى أن عن التي الذي ما هو هي مع كان كانت هذا هذه ذلك بين لم لا قد بعد قبل كما أو ثم حيث و عام "
    "تم كل خلال منذ عند غير حتى إن وقد وكان بعض أي",
    "fa": "و در به از که این است را با آن برای یک بود شد می های تا بر هم یا خود شده",
    "ur": "کے کی میں ہے اور سے کا کو نے پر یہ ایک تھا ہیں کہ",
    "hi": "के की का में है और से को ने पर यह एक था हैं कि थे थी हो भी इस किया कर लिए गया तक जो वह अपने ही या "
    "द्वारा साथ उनके बाद इसके नहीं होता करने तो रूप जा रहा दिया होने हुए कुछ",
    "th": "และ ของ ที่ ใน เป็น ได้ มี จาก โดย กับ ให้ ว่า ซึ่ง หรือ ไม่ นี้ นั้น จะ แต่ เพื่อ ถูก คือ ด้วย แก่ "
    "อยู่ ตาม ต่อ เมื่อ ก็ อย่าง เช่น ทำให้ ระหว่าง",
    "zh": "的 是 在 和 与 了 于 为 由 以 被 将 对 从 到 有 或 及 等 而 也 并 其 这 该 他 她 它 们 但 因 就 都 中 "
    "上 使 让 之 地 得 着 所 不 會 会 與 為 這 個 可以 通过 认为",
    "ja": "は が を に で と の へ も や から まで より した する して いる ある れる られ など として による "
    "という である では には",
    "ko": "그리고 그러나 하지만 또한 및 등 이 그 저 수 것 때문에 위해 위한 대한 대해 따라 있는 있다 했다 하는 하고 "
    "된 되는 있었다 이후 당시 통해 의해 함께 다른 같은 모든 여러 이러한 그의 가장 매우 더",
}
"""Common words of the closed classes: they tell languages of one script apart, and end candidate answers."""

LETTERS: Mapping[str, str] = {
    "de": "äß",
    "fr": "çœêèùàâ",
    "es": "ñ¿¡",
    "pt": "ãõ",
    "ro": "ăîâșțşţ",
    "sv": "å",
    "pl": "ąęłśźżćń",
    "cs": "ěřůšžč",
    "tr": "ığşİ",
    "vi": "ạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹđơư",
    "uk": "іїєґ",
    "ru": "ыэъ",
    "fa": "پچژگی",
    "ur": "ٹڈڑےھں",
    "ar": "ةيىؤئ",
}
"""Letters that one language of a script has and most others have not."""

QUESTION_WORDS: Mapping[str, str] = {
    "en": "what* who whom whose when where why how which",
    "de": "was wer wen wem wessen wann wo wohin woher warum wieso weshalb weswegen wie wieviel* welch* wofür womit "
    "wovon woran worüber worin worauf wodurch worum woraus wogegen wonach wobei wovor worunter wozu",
    "fr": "que qui quoi qu quel* lequel laquelle lesquel* auquel auxquel* duquel desquel* où quand comment "
    "pourquoi combien",
    "es": "qué que quién* quien* cuál* cual* cuándo cuando cuánt* cuant* cuán dónde donde adónde cómo como nombre",
    "it": "che cosa cos chi quale quali qual quando dove come perché quant* quanto",
    "pt": "que quê quem qual quais quando onde como porque quant*",
    "ro": "ce cine cui când unde cum cât* câț* câţ* care cărei cărui cărora",
    "nl": "wat wie wiens welk* waar* wanneer hoe* waarom",
    "sv": "vad vem vems vilk* när var hur varför vart",
    "pl": "co kto kogo komu kim czym czego czemu gdzie kiedy jak* któr* ile ilu dlaczego czy skąd dokąd czyj*",
    "cs": "co kdo koho komu kým kde kdy kam jak* kter* kolik* proč čí čím čeho zda odkud",
    "id": "apa* siapa* kapan* mana* dimana berapa* bagaimana* mengapa* kenapa*",
    "tr": "ne neyi neyin neye neyle neydi neden niçin niye nedir nelerdir neler* nere* nasıl* kim* hangi* kaç* mi "
    "mı mu mü midir mıdır mudur müdür miydi mıydı muydu müydü",
    "vi": "gì nào ai đâu bao mấy sao hay",
    "el": "τι τί ποι* πόσ* ποσ* πότε πού που πώς πως γιατί",
    "ru": "что чего чему чем чём кто кого кому кем ком где когда куда откуда почему зачем отчего как* скольк* "
    "котор* чей чь* ли насколько",
    "uk": "що чого чому чим хто кого кому ким де коли куди звідки як* скільк* котр* чи чий чия чиє",
    "ar": "ما ماذا ماهي ماهو من متى أين اين كيف لماذا لم كم بكم أي أي* اي اية هل بم بماذا بما مم ممن مما لمن فيم "
    "فيما عما علام إلام وما ومن بأي لأي فأي مع لما مالذي ماالذي كيفية ولماذا منذ",
    "fa": "چه چه* چی کی کجا* چرا چگونه چند* کدام* آیا چطور کیست چیست",
    "ur": "کیا کون کس کب کہاں کتن* کیسے کیوں",
    "hi": "क्या कौन* किस* किन* कब कहां कहाँ कहा कितन* कैस* क्यों क्यूं",
}
"""In languages with spaces: words that ask."""

QUESTION_PARTS: Mapping[str, str] = {
    "th": "อะไร ใคร ไหน เมื่อไร เมื่อไหร่ อย่างไร ยังไง ทำไม กี่ เท่าไร เท่าไหร่ ใด หรือไม่ หรือเปล่า ไหม มั้ย บ้าง",
    "zh": "什么 什麼 谁 誰 哪 何 几 幾 多少 多大 多长 多長 多久 多高 多远 多遠 多重 多 怎 吗 嗎 呢 是否 有没有 是不是",
    "ja": "何 なに なん 誰 だれ どこ どちら どっち どの どれ どんな どう いつ いくつ いくら なぜ",
    "ko": "무엇 무슨 누구 누가 언제 어디 어느 어떤 어떻 어떠 왜 몇 얼마 뭐 무얼",
}
"""In languages without spaces, and in Korean: parts of a question that ask."""

QUESTION_ENDINGS: Mapping[str, str] = {
    "ja": "か は の",
    "ko": "까 가 나 요 니 지 은 는 냐",
}
"""With which questions end, the sign left out."""

ENDINGS: Mapping[str, str] = {
    "ko": "은 는 이 가 을 를 의 에 와 과 도 로 만 께 으로 에서 에게 까지 부터 처럼 보다 이다 이며 이고 이나 이라 "
    "라는 라고 이라는 이라고 에는 에도 에서는 에서도 에게서 으로는 으로서 으로써 로서 로써 로는 와는 과의 "
    "와의 에서의 으로의 로의 까지의 부터의 이었다 였다 이자 이란 란 들은 들이 들을 들의 들에게 들과 마다 "
    "조차 밖에",
}
"""Written at the end of a word without a space, and no part of a name or an answer."""

MONTHS_OF: Mapping[str, str] = {
    "de": "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    "fr": "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    "es": "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    "it": "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    "pt": "janeiro fevereiro março abril maio junho julho agosto setembro outubro novembro dezembro",
    "ro": "ianuarie februarie martie aprilie mai iunie iulie august septembrie octombrie noiembrie decembrie",
    "nl": "januari februari maart april mei juni juli augustus september oktober november december",
    "tr": "Ocak Şubat Mart Nisan Mayıs Haziran Temmuz Ağustos Eylül Ekim Kasım Aralık",
    "el": "Ιανουαρίου Φεβρουαρίου Μαρτίου Απριλίου Μαΐου Ιουνίου Ιουλίου Αυγούστου Σεπτεμβρίου Οκτωβρίου Νοεμβρίου "
    "Δεκεμβρίου",
    "ru": "января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    "ar": "يناير فبراير مارس أبريل مايو يونيو يوليو أغسطس سبتمبر أكتوبر نوفمبر ديسمبر",
    "hi": "जनवरी फ़रवरी फरवरी मार्च अप्रैल मई जून जुलाई अगस्त सितंबर सितम्बर अक्टूबर अक्तूबर नवंबर नवम्बर दिसंबर दिसम्बर",
    "th": "มกราคม กุมภาพันธ์ มีนาคม เมษายน พฤษภาคม มิถุนายน กรกฎาคม สิงหาคม กันยายน ตุลาคม พฤศจิกายน ธันวาคม",
}
"""As dates have them, after the day."""

NUMBERS_OF: Mapping[str, str] = {
    "de": "zwei drei vier fünf sechs sieben acht neun zehn elf zwölf zwanzig dreißig hundert tausend",
    "fr": "deux trois quatre cinq six sept huit neuf dix onze douze vingt trente quarante cinquante cent mille",
    "es": "dos tres cuatro cinco seis siete ocho nueve diez once doce veinte treinta cuarenta cincuenta cien mil",
    "ro": "două doi trei patru cinci șase șapte opt nouă zece unsprezece doisprezece douăzeci treizeci sută mie",
    "tr": "iki üç dört beş altı yedi sekiz dokuz on yirmi otuz kırk elli altmış yüz bin",
    "vi": "hai ba bốn năm sáu bảy tám chín mười trăm nghìn ngàn",
    "el": "δύο τρεις τρία τέσσερις τέσσερα πέντε έξι επτά οκτώ εννέα δέκα δώδεκα είκοσι τριάντα εκατό χίλια",
    "ru": "два две двух три трех трёх четыре четырех пять пяти шесть семь восемь девять десять двенадцать двадцать "
    "тридцать сто тысяча",
    "ar": "اثنان اثنين ثلاثة ثلاث أربعة أربع خمسة خمس ستة ست سبعة سبع ثمانية ثماني تسعة تسع عشرة عشر عشرين ثلاثين "
    "مائة ألف",
    "hi": "दो तीन चार पांच पाँच छह छः सात आठ नौ दस ग्यारह बारह बीस तीस चालीस पचास सौ हज़ार हजार लाख करोड़",
    "ko": "하나 둘 셋 넷 다섯 여섯 일곱 여덟 아홉 열 스물",
    "th": "สอง สาม สี่ ห้า หก เจ็ด แปด เก้า สิบ ร้อย พัน หมื่น แสน ล้าน",
}

UNITS_OF: Mapping[str, str] = {
    "de": "Millionen Milliarden Prozent Jahre Jahren Tage Tagen Stunden Minuten Sekunden km m Meter Kilometer "
    "Meilen Euro Dollar Menschen Personen Grad",
    "fr": "millions millions milliards ans années jours heures minutes secondes km m mètres kilomètres euros "
    "dollars habitants personnes pour siècle mois",
    "es": "millones años días horas minutos segundos km m metros kilómetros millas dólares euros personas por mil "
    "grados",
    "ro": "milioane miliarde ani zile ore minute secunde km m metri kilometri mile dolari euro oameni la de",
    "tr": "milyon milyar bin yıl yaş saniye dakika saat gün ay km metre kilometre dolar kişi derece yılında yüzyıl",
    "vi": "triệu tỷ nghìn ngàn năm tháng ngày giờ phút giây km m mét ki-lô-mét dặm người đô la phần trăm lần tuổi",
    "el": "εκατομμύρια δισεκατομμύρια χρόνια έτη ημέρες ώρες λεπτά δευτερόλεπτα χλμ μέτρα χιλιόμετρα δολάρια ευρώ "
    "άτομα",
    "ru": "миллион миллиона миллионов миллиардов миллиарда тысяч лет года год году годов дней часов минут секунд "
    "км м метров километров миль долларов человек процентов века век веке",
    "ar": "مليون مليار ألف سنة عام عامًا سنوات أعوام يوم أيام ساعة دقيقة ثانية كم متر كيلومتر ميل دولار يورو شخص "
    "في المائة بالمائة قرن",
    "hi": "मिलियन बिलियन लाख करोड़ हज़ार हजार वर्ष साल दिन घंटे मिनट सेकंड किमी मीटर किलोमीटर मील डॉलर लोग लोगों प्रतिशत",
    "ko": "년 월 일 명 개 회 차 세 살 원 달러 만 억 조 천 시간 분 초 미터 km kg 퍼센트 위 점 번 권 편 곳 마리 대 "
    "층 주 개월 세기",
    "th": "ล้าน ล้านคน คน ปี เดือน วัน ชั่วโมง นาที วินาที กิโลเมตร เมตร ไมล์ ดอลลาร์ บาท เปอร์เซ็นต์ องศา ครั้ง แห่ง",
}
"""What may follow a number within an answer."""


AUTO, OTHER = "auto", "other"
WORDS, CHARACTERS = "words", "characters"
ENOUGH = 2000
"""Characters of a text that its language is found from."""


@dataclass(frozen=True)
class Language:
    """What is known of a language.

    `scripts` are named as `scripts` returns them. Lengths are counted in `unit`, words between spaces or characters;
    `per_word` of them say what one English word does: the mean over the parallel questions of XQuAD (Korean and
    Japanese, which are not in it: so that as many human questions have six words as in SQuAD; 1: within a tenth of
    it, or not measured). `marks_questions`: questions end in a question mark. `endings`: particles that are written
    at the end of a name and are not a part of it.
    """

    code: str
    name: str
    scripts: frozenset[str]
    per_word: float = 1.0
    unit: str = WORDS
    marks_questions: bool = True
    endings: tuple[str, ...] = ()


def _language(code: str, name: str, written: str, per_word: float = 1.0, **facts: object) -> tuple[str, Language]:
    return code, Language(code, name, frozenset(written.split()), per_word, **facts)  # type: ignore[arg-type]


LANGUAGES: Mapping[str, Language] = dict(
    [
        _language("en", "English", "LATIN"),
        _language("de", "German", "LATIN"),
        _language("fr", "French", "LATIN"),
        _language("es", "Spanish", "LATIN"),
        _language("it", "Italian", "LATIN"),
        _language("pt", "Portuguese", "LATIN"),
        _language("ro", "Romanian", "LATIN"),
        _language("nl", "Dutch", "LATIN"),
        _language("sv", "Swedish", "LATIN"),
        _language("pl", "Polish", "LATIN"),
        _language("cs", "Czech", "LATIN"),
        _language("id", "Indonesian", "LATIN"),
        _language("tr", "Turkish", "LATIN", 0.77),
        _language("vi", "Vietnamese", "LATIN", 1.33),
        _language("el", "Greek", "GREEK"),
        _language("ru", "Russian", "CYRILLIC", 0.83),
        _language("uk", "Ukrainian", "CYRILLIC"),
        _language("ar", "Arabic", "ARABIC", 0.9),
        _language("fa", "Persian", "ARABIC"),
        _language("ur", "Urdu", "ARABIC"),
        _language("hi", "Hindi", "DEVANAGARI"),
        _language(
            "ko", "Korean", "HANGUL CJK", 0.7, endings=tuple(sorted(ENDINGS["ko"].split(), key=len, reverse=True))
        ),
        _language("th", "Thai", "THAI", 4.05, unit=CHARACTERS, marks_questions=False),
        _language("lo", "Lao", "LAO", 4.05, unit=CHARACTERS, marks_questions=False),  # as in Thai, not measured
        _language("km", "Khmer", "KHMER", 4.05, unit=CHARACTERS, marks_questions=False),
        _language("my", "Burmese", "MYANMAR", 4.05, unit=CHARACTERS, marks_questions=False),
        _language("zh", "Chinese", "CJK", 1.58, unit=CHARACTERS),
        _language("ja", "Japanese", "KANA CJK", 2.4, unit=CHARACTERS, marks_questions=False),
    ]
)
"""The languages whose rules are known, by code."""


def code_fault(code: str) -> str:
    """Return why a setting is no language; "" where it is a code of two or three letters, `auto` or `other`.

    >>> code_fault("english")
    'english is no code of a language: give one such as de, auto (found in the texts) or other'
    """
    if re.fullmatch("[a-z]{2,3}", code.casefold()) or code.casefold() in (AUTO, OTHER):
        return ""
    return f"{code} is no code of a language: give one such as de, {AUTO} (found in the texts) or {OTHER}"


_THREE_LETTERS = dict(
    pair.split(":")
    for pair in "eng:en deu:de fra:fr spa:es ita:it por:pt ron:ro nld:nl swe:sv pol:pl ces:cs ind:id tur:tr vie:vi "
    "ell:el rus:ru ukr:uk ara:ar arb:ar fas:fa pes:fa urd:ur hin:hi kor:ko tha:th lao:lo khm:km mya:my "
    "zho:zh jpn:ja".split()
)


def code_of(name: str) -> str:
    """Return the code under which `LANGUAGES` has a language that is named with capitals, a region or three letters.

    >>> [code_of(name) for name in ("KO", "de_DE", "zh-TW", "tha_Thai", "eu")]
    ['ko', 'de', 'zh', 'th', 'eu']
    """
    first = re.split("[-_]", name.strip().casefold(), maxsplit=1)[0]
    return _THREE_LETTERS.get(first, first)


# --- Which language ---


def language_of(texts: str | Iterable[str]) -> str:
    """Return the code of the language in which most of the texts are; "" where they do not tell.

    By the script, where one language of `LANGUAGES` is written in it. Among languages of one script that language
    that has most of the text's different words among its common ones (`FUNCTION_WORDS`) or with its own letters
    (`LETTERS`), if no other has as many. Latin names in text of another script do not count. A text in
    a language that is not in `LANGUAGES` can be taken for a related one.

    >>> language_of("Wer hat das Buch geschrieben?"), language_of("誰が書いたか"), language_of("1984")
    ('de', 'ja', '')
    """
    votes: Counter[str] = Counter(_language_of_text(text[:ENOUGH]) for text in _listed(texts))
    del votes[""]
    return min(votes, key=lambda code: (-votes[code], code)) if votes else ""


def _listed(texts: str | Iterable[str]) -> Iterable[str]:
    return [texts] if isinstance(texts, str) else texts


@lru_cache(1 << 12)
def _language_of_text(text: str) -> str:
    counts = scripts(text)
    if not counts:
        return ""
    others = {name: count for name, count in counts.items() if name != "LATIN" and 4 * count >= counts.total()}
    script, letters = max((others or counts).items(), key=lambda item: (item[1], item[0]))
    if script == "CJK" and 10 * counts["KANA"] >= letters:
        script = "KANA"
    elif script == "CJK" and counts["HANGUL"] > letters / 2:
        script = "HANGUL"
    candidates = [code for code, language in LANGUAGES.items() if _first_script(language) == script]
    if len(candidates) < 2:
        return next(iter(candidates), "")
    found = set(normalised_words(text))  # a name may repeat an article: Los Angeles
    points = Counter[str]()
    for code in candidates:
        common, letters_of_it = _common_words(code), LETTERS.get(code, "")
        points[code] = sum((word in common) + any(map(letters_of_it.__contains__, word)) for word in found)
    (best, most), (_, second) = points.most_common(2)
    return best if most > second else ""


def _first_script(language: Language) -> str:
    return {"ko": "HANGUL", "ja": "KANA"}.get(language.code) or next(iter(language.scripts))


@cache
def _common_words(code: str) -> frozenset[str]:
    whole = [word for word in QUESTION_WORDS.get(code, "").split() if not word.endswith("*")]
    return frozenset([*FUNCTION_WORDS[code].split(), *whole])


def words_of(text: str, language: str = "") -> list[str]:
    """Return the words of a text for comparison (`normalised_words`), in lower case by the rules of a language."""
    return normalised_words(lower(text, language))


# --- Rules ---


def length_in_words(text: str, language: str) -> float:
    """Return the length of a text in English words: its words, or characters, over those that say what one does.

    >>> length_in_words("誰がこの本を書いたか？", "ja"), length_in_words("Who wrote it?", "en")
    (4.166666666666667, 3.0)
    """
    known = LANGUAGES.get(language)
    return word_count(text) / (known.per_word if known else 1.0)


def has_question_word(text: str, language: str) -> bool:
    """Return whether a text has a word that asks or, in Korean and Japanese, ends as questions do; True in languages
    whose question words are not known (`knows_question_words`).
    """
    if language in QUESTION_PARTS:
        ending = text.rstrip(" ?？。.!！\"'”’」』)）")
        return any(part in text for part in QUESTION_PARTS[language].split()) or ending.endswith(_endings(language))
    whole, beginnings = _question_words(language)
    found = words_of(text, language)
    if language == "ar":  # and, so, by, for, as are written together with the next word
        found += [word[1:] for word in found if word[0] in "وفبلك"]
    return not whole or any(word in whole or word.startswith(beginnings) for word in found)


def knows_question_words(language: str) -> bool:
    """Return whether the question words of a language are known."""
    return language in QUESTION_PARTS or language in QUESTION_WORDS


@cache
def _endings(language: str) -> tuple[str, ...]:
    return tuple(QUESTION_ENDINGS.get(language, "\0").split())


@cache
def _question_words(language: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """The words that ask, and the beginnings of words that do."""
    given = QUESTION_WORDS.get(language, "").split()
    words = {word: normalised_words(word)[0] for word in given}
    whole = frozenset(word for entry, word in words.items() if not entry.endswith("*"))
    return whole, tuple(word for entry, word in words.items() if entry.endswith("*"))


def contains_text(part: str, whole: str, language: str) -> bool:
    """Return whether a text holds another one word for word (`contains_words`), by the rules of a language.

    In languages without spaces, whether the characters follow each other; a single character is no word there, while
    Latin words and figures are compared whole. A Korean word counts with any of its particles after it. Turkish is
    compared by the rules for I and İ.

    >>> contains_text("서울", "서울은 어느 나라에 있나?", "ko"), contains_text("ISPARTA", "Isparta nerede?", "tr")
    (True, True)
    """
    known = LANGUAGES.get(language)
    part, whole = lower(part, language), lower(whole, language)
    if known is not None and known.unit == CHARACTERS:
        wanted, available = (separate_unspaced(" ".join(normalised_words(text))).split() for text in (part, whole))
        if len(wanted) == 1 and is_unspaced(wanted[0]):
            return False
        starts = range(len(available) - len(wanted) + 1)
        return bool(wanted) and any(available[start : start + len(wanted)] == wanted for start in starts)
    if contains_words(part, whole):
        return True
    if known is None or not known.endings:
        return False
    wanted_words, words = normalised_words(part), normalised_words(whole)
    for start in range(len(words) - len(wanted_words) + 1):
        *before, last = words[start : start + len(wanted_words)] or [""]
        ending = last.removeprefix(wanted_words[-1]) if wanted_words else ""
        if wanted_words and before == wanted_words[:-1] and last != ending and ending in known.endings:
            return True
    return False


def without_ending(word: str, language: str) -> str:
    """Return a Korean word without its particle, of at least one syllable; any other word as it is."""
    known = LANGUAGES.get(language)
    for ending in known.endings if known else ():
        if word.endswith(ending) and len(word) > len(ending) + (len(ending) == 1):
            return word[: -len(ending)]
    return word


# --- Scripts: Latin, Cyrillic, Arabic, Han and so on ---


def scripts(text: str) -> Counter[str]:
    """The number of letters of each script in a text; combining marks do not count."""
    counts = Counter[str]()
    for script, letters in script_runs(text):
        counts[script] += len(letters)
    return counts


def script_runs(text: str) -> Iterator[tuple[str, str]]:
    """Script and letters of each run of letters of one script: the words, in languages that separate words."""
    for script, letters in groupby(unicodedata.normalize("NFC", text).casefold(), _script):
        if script:
            yield script, "".join(letters)


def share_in(text: str, allowed: Collection[str], known: str = "") -> float:
    """The share of a text's letters that are in allowed scripts or in words of the text `known`; 1 without letters.

    >>> share_in("Кто основал NASA?", {"CYRILLIC"}, "НАСА (NASA) существует с 1958 года.")
    1.0
    """
    runs = list(script_runs(text))
    foreign = [run for run in runs if run[0] not in allowed]
    if foreign and known:
        of_known = set(script_runs(known))
        foreign = [run for run in foreign if run not in of_known]
    total = sum(len(letters) for _, letters in runs)
    return 1.0 if not total else (total - sum(len(letters) for _, letters in foreign)) / total


_SHARED = {"HIRAGANA": "KANA", "KATAKANA": "KANA", "KATAKANA-HIRAGANA": "KANA", "IDEOGRAPHIC": "CJK"}


@cache
def _script(character: str) -> str:
    """The script of a letter, which is the first word of its Unicode name: LATIN, CYRILLIC, CJK and so on.

    Hiragana, katakana and their length marks are one script; so are CJK characters and their iteration marks.
    """
    if not character.isalpha():
        return ""
    name = unicodedata.name(character, "").removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ").split(" ")[0]
    return _SHARED.get(name, name)
