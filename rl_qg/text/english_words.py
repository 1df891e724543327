"""Closed word classes of English for the rules of `rl_qg.generation.answers.rules`: without a tagger they bound what
may be an answer. Lower case; English unless a comment says otherwise.
"""


def _words(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in text.split())


DETERMINERS = _words("a an the this that these those its his her their our my your whose each every some any no such")
PREPOSITIONS = _words(
    "about above across after against along amid among around at before behind below beneath beside besides between",
    "beyond by despite down during except for from in inside into like near of off on onto out outside over past per",
    "since through throughout to toward towards under underneath unlike until up upon via with within without versus",
)
CONJUNCTIONS = _words(
    "and or but nor so yet although though because if unless whereas while when where which who whom what why how",
    "whether than as that whenever wherever whichever whoever once both either neither",
)
PRONOUNS = _words(
    "i you he she it we they me him us them one ones himself herself itself themselves ourselves mine yours hers ours",
    "theirs there here something anything nothing everything someone anyone everyone others another",
)
AUXILIARIES = _words(
    "is are was were be been being am has have had having do does did doing will would shall should can could may",
    "might must ought cannot won't don't doesn't didn't isn't aren't wasn't weren't can't couldn't wouldn't not n't",
)
ADVERBS = _words(
    "about abroad according accordingly additionally again ago ahead all almost already also altogether always",
    "apart approximately away back commonly consequently currently due earlier else especially etc even",
    "eventually ever far few finally first fully further furthermore generally hence highly however indeed",
    "initially instead just largely last later least less likewise mainly many maybe meanwhile more moreover",
    "most mostly much nearly never nevertheless next no nonetheless not now often only originally other",
    "otherwise overall own particularly partly perhaps previously quite rather recently roughly same several",
    "similarly sometimes soon specifically still subsequently then therefore thus today together too typically",
    "usually very well yes",
)
# Frequent verbs whose forms no suffix reveals.
VERBS = _words(
    "allow allows appear appears argue argues became become becomes began begin begins begun believe believes",
    "borne bring brings brought build builds built call calls came cause causes come comes consist consists",
    "contain contains continue continues cost costs create creates cut decide depend depends describe describes",
    "develop die dies draw drawn draws drew eat eats ensure enter exist exists extend extends fall falls",
    "feature features feel feels fell felt fight find finds flew focus follow follows forced form forms fought",
    "found gain gave get gets give given gives go goes gone got grew grow grows happen happens held help helps",
    "hold holds include includes increase increases indicate indicates involve involves keep keeps kept knew",
    "know known knows lack lacks lead leads learn leave leaves led left let lets lie lies live lives lose loses",
    "lost made maintain make makes mean means meant meet meets met move moves need needs occur occurs offer",
    "offers operate operates paid pass passed passes pay pays play plays produce produces provide provides put",
    "puts ran reach read receive receives reduce refer refers rely remain remains represent represents require",
    "requires rise rises rose run runs said sat saw say says see seek seem seems seen sell send sent serve",
    "serves set sets show shown shows sold speak speaks spent spoke spread stand stands start starts stood",
    "struck suggest suggests support supports take taken takes taught teach tell tells tend tends think thinks",
    "thought threw told took tries try turn turns use uses varies vary want wants went win wins won work works",
    "write writes written wrote",
)
CLOSED = DETERMINERS | PREPOSITIONS | CONJUNCTIONS | PRONOUNS | AUXILIARIES | ADVERBS

# Inside names, of several languages: "University of Notre Dame", "Ludwig van Beethoven", "Vasco da Gama".
PARTICLES = _words(
    "of the de del della di da do dos das du des la le les van von der den zu y e al el bin ibn abu & for"
)
JOINING = _words("of de del della di da do dos das du des van von zu bin ibn al &")  # may stand alone between capitals
MONTHS = _words(
    "january february march april may june july august september october november december jan feb mar apr jun jul",
    "aug sep sept oct nov dec",
)
WEEKDAYS = _words("monday tuesday wednesday thursday friday saturday sunday")
NUMBERS = _words(
    "two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen",
    "nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion dozen",
    "half one-third two-thirds one-half three-quarters",
)
UNITS = _words(
    "percent % per cent percentage points million billion trillion thousand hundred dozen km km2 km² kilometres",
    "kilometers kilometre m metres meters metre meter cm mm centimetres centimeters miles mile feet foot ft inches",
    "inch yards yard acres acre hectares hectare kg kilograms kilogram g grams tons ton tonnes tonne pounds pound lb",
    "ounces litres liters gallons seconds second minutes minute hours hour days day weeks week months month years",
    "year decades centuries °c °f degrees mph hz khz mhz ghz bits bytes kb mb gb tb watts kw mw gw volts dollars",
    "euros yen pence cents square cubic times people students degrees",
)
