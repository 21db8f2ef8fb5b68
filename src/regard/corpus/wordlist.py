"""The words of the built-in corpus, in tables that people can read and correct."""

# Nouns by kind, each written as: english[/plural] German gender genitive plural.
# The kind "child" has no pronoun `he` or `she`, because German usage varies for das Mädchen.
NOUN_TABLE = {
    "male": """
man/men Mann m Mannes Männer; boy Junge m Jungen Jungen; father Vater m Vaters Väter;
son Sohn m Sohnes Söhne; brother Bruder m Bruders Brüder; uncle Onkel m Onkels Onkel;
friend Freund m Freundes Freunde; neighbor Nachbar m Nachbarn Nachbarn;
teacher Lehrer m Lehrers Lehrer; doctor Arzt m Arztes Ärzte; farmer Bauer m Bauern Bauern;
student Student m Studenten Studenten; king König m Königs Könige; guest Gast m Gastes Gäste;
customer Kunde m Kunden Kunden
""",
    "female": """
woman/women Frau f Frau Frauen; mother Mutter f Mutter Mütter;
daughter Tochter f Tochter Töchter; sister Schwester f Schwester Schwestern;
aunt Tante f Tante Tanten; queen Königin f Königin Königinnen;
waitress Kellnerin f Kellnerin Kellnerinnen;
actress Schauspielerin f Schauspielerin Schauspielerinnen
""",
    "child": """
child/children Kind n Kindes Kinder; girl Mädchen n Mädchens Mädchen
""",
    "animal": """
dog Hund m Hundes Hunde; bird Vogel m Vogels Vögel; bear Bär m Bären Bären;
donkey Esel m Esels Esel; cat Katze f Katze Katzen; cow Kuh f Kuh Kühe;
goat Ziege f Ziege Ziegen; duck Ente f Ente Enten; horse Pferd n Pferdes Pferde;
pig Schwein n Schweins Schweine; rabbit Kaninchen n Kaninchens Kaninchen;
lamb Lamm n Lammes Lämmer
""",
    "thing": """
key Schlüssel m Schlüssels Schlüssel; ball Ball m Balls Bälle; plate Teller m Tellers Teller;
umbrella Regenschirm m Regenschirms Regenschirme; basket Korb m Korbes Körbe;
suitcase Koffer m Koffers Koffer; box Kiste f Kiste Kisten; bag Tasche f Tasche Taschen;
bottle Flasche f Flasche Flaschen; flower Blume f Blume Blumen; clock Uhr f Uhr Uhren;
knife/knives Messer n Messers Messer; gift Geschenk n Geschenks Geschenke;
picture Bild n Bildes Bilder; glass Glas n Glases Gläser
""",
    "text": """
letter Brief m Briefes Briefe; report Bericht m Berichts Berichte;
map Karte f Karte Karten; newspaper Zeitung f Zeitung Zeitungen;
book Buch n Buches Bücher; notebook Heft n Heftes Hefte
""",
    "device": """
computer Computer m Computers Computer; television Fernseher m Fernsehers Fernseher;
lamp Lampe f Lampe Lampen; machine Maschine f Maschine Maschinen; radio Radio n Radios Radios;
telephone Telefon n Telefons Telefone
""",
    "furniture": """
table Tisch m Tisches Tische; chair Stuhl m Stuhls Stühle;
cupboard Schrank m Schranks Schränke; bench Bank f Bank Bänke; bed Bett n Bettes Betten;
sofa Sofa n Sofas Sofas; shelf/shelves Regal n Regals Regale
""",
    "vehicle": """
bus Bus m Busses Busse; train Zug m Zuges Züge; truck Lastwagen m Lastwagens Lastwagen;
ferry Fähre f Fähre Fähren; carriage Kutsche f Kutsche Kutschen; car Auto n Autos Autos;
ship Schiff n Schiffes Schiffe
""",
    "clothing": """
coat Mantel m Mantels Mäntel; hat Hut m Hutes Hüte; skirt Rock m Rocks Röcke;
jacket Jacke f Jacke Jacken; blouse Bluse f Bluse Blusen; shirt Hemd n Hemdes Hemden;
dress Kleid n Kleides Kleider
""",
    "food": """
apple Apfel m Apfels Äpfel; cake Kuchen m Kuchens Kuchen; soup Suppe f Suppe Suppen;
pear Birne f Birne Birnen; potato/potatoes Kartoffel f Kartoffel Kartoffeln; egg Ei n Eis Eier;
roll Brötchen n Brötchens Brötchen
""",
    "building": """
tower Turm m Turms Türme; station Bahnhof m Bahnhofs Bahnhöfe; shop Laden m Ladens Läden;
church Kirche f Kirche Kirchen; school Schule f Schule Schulen; bridge Brücke f Brücke Brücken;
house Haus n Hauses Häuser; castle Schloss n Schlosses Schlösser; hotel Hotel n Hotels Hotels;
museum Museum n Museums Museen
""",
    "area": """
garden Garten m Gartens Gärten; forest Wald m Waldes Wälder; park Park m Parks Parks;
market Markt m Marktes Märkte; lake See m Sees Seen; city Stadt f Stadt Städte;
street Straße f Straße Straßen; island Insel f Insel Inseln; village Dorf n Dorfes Dörfer;
field Feld n Feldes Felder
""",
    "indoors": """
kitchen Küche f Küche Küchen; room Zimmer n Zimmers Zimmer
""",
    "part": """
engine Motor m Motors Motoren; tail Schwanz m Schwanzes Schwänze;
owner Besitzer m Besitzers Besitzer; title Titel m Titels Titel; price Preis m Preises Preise;
color Farbe f Farbe Farben; door Tür f Tür Türen; roof Dach n Daches Dächer;
window Fenster n Fensters Fenster; ear Ohr n Ohres Ohren
""",
    "activity": """
path Weg m Weges Wege; task Aufgabe f Aufgabe Aufgaben; journey Reise f Reise Reisen;
game Spiel n Spiels Spiele
""",
}

GROUPS = {
    "person": "male,female,child",
    "movable": "thing,text,clothing,device",
    "goods": "thing,text,clothing,device,furniture,vehicle",
    "tool": "furniture,thing,device,vehicle,clothing",
    "place": "building,area,indoors",
    "openable": "box,bag,suitcase,bottle,cupboard,window,door",
    "anything": "goods,food,place",
}

# Nouns, kinds or groups, then adjectives that fit them, as english:german[/stem]. If a phrase has
# an adjective of each of the next two tables, the adjective of QUALITY_TABLE comes first.
QUALITY_TABLE = """
person,animal,owner: young:jung friendly:freundlich clever:klug lazy:faul strong:stark
male,female,owner: rich:reich poor:arm
male,female,building,text: famous:berühmt
goods,building,indoors,roof,door,window,engine,owner: new:neu
goods: expensive:teuer/teur cheap:billig
animal,tool,food,place,door,window,roof,ear: big:groß small:klein
male,female,animal,goods,place,roof,door,window,engine,owner: old:alt
animal,goods,place,roof,door,window,tail,color,title: beautiful:schön
animal,tool,building,indoors,roof,door,window,tail,color: ugly:hässlich
person,animal,thing,text,device,food,building,ear,tail,color,title,price,owner: strange:seltsam
activity: new:neu strange:seltsam
"""
STATE_TABLE = """
person,animal,owner: tired:müde/müd hungry:hungrig sick:krank
person,animal,owner: happy:glücklich sad:traurig nervous:nervös
animal,vehicle,street,bridge: dangerous:gefährlich
thing,furniture,vehicle,clothing,roof,door: red:rot green:grün blue:blau yellow:gelb
animal,tool,roof,door,tail,ear: black:schwarz white:weiß brown:braun
thing,device,furniture: heavy:schwer
device,vehicle,furniture,engine: broken:kaputt
tool,indoors,window: dirty:schmutzig clean:sauber
place: quiet:ruhig
building,indoors,box,bag,bottle,basket,suitcase,cupboard: empty:leer
device,building,indoors: modern:modern
device,vehicle,engine: loud:laut
text,tail,ear,title: long:lang short:kurz
food: cold:kalt warm:warm fresh:frisch
price: high:hoch/hoh low:niedrig
activity: long:lang short:kurz
"""
# Nouns, then adjectives for `make NOUN more ADJECTIVE`, each with its German comparative.
COMPARATIVE_TABLE = """
activity,text: difficult:schwieriger
activity,vehicle,animal: dangerous:gefährlicher
activity,goods: expensive:teurer
male,female,animal: nervous:nervöser
goods,animal: beautiful:schöner
device,vehicle,furniture: modern:moderner
text: famous:berühmter
"""

# Each line: subjects [> objects] | verb[+particle or @preposition] [past] [participle] [3rd person]
# | [particle-]infinitive present past participle [sein, or preposition and case]
# A ! before the verb marks a verb of state, which gets no perfect, passive or modal verb.
VERB_TABLE = {
    "none": """
person,animal | sleep slept | schlafen schläft schlief geschlafen
person | work | arbeiten arbeitet arbeitete gearbeitet
person | dance | tanzen tanzt tanzte getanzt
person,bird | sing sang sung | singen singt sang gesungen
person | laugh | lachen lacht lachte gelacht
person,animal | play | spielen spielt spielte gespielt
person,animal,vehicle | wait | warten wartet wartete gewartet
movable,animal | disappear | verschwinden verschwindet verschwand verschwunden sein
person,animal | wake+up woke woken | auf-wachen wacht wachte aufgewacht sein
person | get+up got gotten | auf-stehen steht stand aufgestanden sein
person,animal | come+back came come | zurück-kommen kommt kam zurückgekommen sein
person,vehicle | arrive | an-kommen kommt kam angekommen sein
vehicle | leave left | ab-fahren fährt fuhr abgefahren sein
vehicle | stop stopped | an-halten hält hielt angehalten
""",
    "accusative": """
person > goods,animal | buy bought | kaufen kauft kaufte gekauft
person > goods,building,animal | sell sold | verkaufen verkauft verkaufte verkauft
person,animal > movable | find found | finden findet fand gefunden
person > movable | lose lost | verlieren verliert verlor verloren
person,animal > person,animal,anything | see saw seen | sehen sieht sah gesehen
person,animal > person,animal,movable | look@for | suchen sucht suchte gesucht
person > device,vehicle,furniture | repair | reparieren repariert reparierte repariert
person > furniture,vehicle,window,shop,indoors | clean | putzen putzt putzte geputzt
person,animal > movable,food | hide hid hidden | verstecken versteckt versteckte versteckt
person,animal > person,animal | !love | lieben liebt liebte geliebt
person > goods | !need | brauchen braucht brauchte gebraucht
person > goods,animal | !have had had has | haben hat hatte gehabt
person > male,female,building,area | visit | besuchen besucht besuchte besucht
person > male,female | meet met | treffen trifft traf getroffen
person,animal > food | eat ate eaten | essen isst aß gegessen
person > movable,male,female | forget forgot forgotten | vergessen vergisst vergaß vergessen
person > letter,report,book | write wrote written | schreiben schreibt schrieb geschrieben
person > building,furniture,ship | build built | bauen baut baute gebaut
person > goods,animal | steal stole stolen | stehlen stiehlt stahl gestohlen
person > place,animal,furniture | draw drew drawn | zeichnen zeichnet zeichnete gezeichnet
person > animal | feed fed | füttern füttert fütterte gefüttert
animal > animal | chase | jagen jagt jagte gejagt
person > openable | open | auf-machen macht machte aufgemacht
person > openable | close | zu-machen macht machte zugemacht
person > device | turn+on | ein-schalten schaltet schaltete eingeschaltet
person > device | turn+off | aus-schalten schaltet schaltete ausgeschaltet
person > movable | pick+up | auf-heben hebt hob aufgehoben
person > movable,food | throw+away threw thrown | weg-werfen wirft warf weggeworfen
person > male,female | invite | ein-laden lädt lud eingeladen
person > male,female | call | an-rufen ruft rief angerufen
person,animal > person,animal,anything | look@at | an-sehen sieht sah angesehen
person > movable,vehicle,animal | bring+back brought | zurück-bringen bringt brachte zurückgebracht
person > movable,food,child | take+along took taken | mit-nehmen nimmt nahm mitgenommen
person > clothing | try+on tried | an-probieren probiert probierte anprobiert
person > food | prepare | zu-bereiten bereitet bereitete zubereitet
""",
    "dative": """
person > person,animal | help | helfen hilft half geholfen
person,animal,vehicle > person,animal,vehicle | follow | folgen folgt folgte gefolgt sein
person > male,female | thank | danken dankt dankte gedankt
person,animal > male,female,bird | listen@to | zu-hören hört hörte zugehört
goods,building > male,female | !belong@to | gehören gehört gehörte gehört
""",
    "both": """
person > movable,food | give gave given | geben gibt gab gegeben
person > anything,animal | show showed shown | zeigen zeigt zeigte gezeigt
person > movable | send sent | schicken schickt schickte geschickt
person > movable,food | bring brought | bringen bringt brachte gebracht
""",
    "phrase": """
person,animal > person,vehicle | wait@for | warten wartet wartete gewartet auf accusative
person > person,animal,anything | dream@of | träumen träumt träumte geträumt von dative
person > person,animal,anything | think@of thought | denken denkt dachte gedacht an accusative
""",
    "motion": """
person | go went gone | gehen geht ging gegangen sein
person,animal | run ran run | laufen läuft lief gelaufen sein
person | travel | reisen reist reiste gereist sein
person,car,truck,bus,train | drive drove driven | fahren fährt fuhr gefahren sein
person,animal | come came come | kommen kommt kam gekommen sein
""",
    "placement": """
person > movable | lay laid | legen legt legte gelegt
person > movable,chair | place | stellen stellt stellte gestellt
""",
    "transport": """
person,animal > movable,food | carry | tragen trägt trug getragen
""",
    "clause": """
person | say said | sagen sagt sagte gesagt
person | !believe | glauben glaubt glaubte geglaubt
person | !know knew known | wissen weiß wusste gewusst
person | !hope | hoffen hofft hoffte gehofft
person | !hear heard | hören hört hörte gehört
person | !ask | fragen fragt fragte gefragt
""",
    "product": """
person > clothing,device,furniture,vehicle | make made | her-stellen stellt stellte hergestellt
""",
    "result": """
person,animal,movable > activity | make made | machen macht machte gemacht
person,animal > goods,male,female,animal | make made | machen macht machte gemacht
""",
}

# A place, then its prepositions, as english=german: for being there (dative) | for going there.
SETTING_TABLE = """
garden in=in behind=hinter | into=in through=durch
forest in=in behind=hinter | into=in through=durch
park in=in behind=hinter | into=in through=durch
city in=in | into=in
village in=in | into=in through=durch
field in=auf | over=über
street on=auf | over=über
island on=auf | to=zu
market at=auf | to=zu
lake at=an | to=zu
kitchen in=in | into=in
room in=in | into=in through=durch
house in=in behind=hinter beside=neben | into=in
school in=in behind=hinter beside=neben | to=zu
church in=in behind=hinter beside=neben | into=in
castle in=in behind=hinter beside=neben | into=in to=zu
hotel in=in behind=hinter beside=neben | into=in to=zu
museum in=in behind=hinter beside=neben | into=in to=zu
shop in=in behind=hinter beside=neben | into=in
station at=an behind=hinter beside=neben | to=zu
tower in=in behind=hinter beside=neben | to=zu
bridge on=auf under=unter beside=neben | over=über
"""
# A place, then its prepositions: they say where a thing is (dative), or is put (accusative).
SPOT_TABLE = """
table on=auf under=unter beside=neben
chair on=auf under=unter beside=neben
bed on=auf under=unter beside=neben
bench on=auf under=unter beside=neben
sofa on=auf behind=hinter beside=neben
shelf on=auf beside=neben
cupboard in=in behind=hinter beside=neben
box in=in behind=hinter beside=neben
bag in=in beside=neben
basket in=in beside=neben
suitcase in=in beside=neben
door beside=neben behind=hinter
window beside=neben under=unter
"""

# Adverbials of time: english = german. A label without a word, such as NP, begins a nested phrase.
TIME_TABLE = {
    "past": """
NP NN:yesterday = gestern; NP JJ:last NN:week = letzte Woche; NP JJ:last NN:year = letztes Jahr
""",
    "present": "NP NN:today = heute; ADVP RB:now = jetzt; NP DT:every NN:day = jeden Tag",
    "future": "NP NN:tomorrow = morgen; NP JJ:next NN:week = nächste Woche",
    "any": """
PP IN:on NP NNP:Monday = am Montag; PP IN:on NP NNP:Sunday = am Sonntag;
PP IN:in NP DT:the NN:morning = am Morgen; PP IN:in NP DT:the NN:evening = am Abend
""",
}
FIRST_NAMES = {
    "male": ["Peter", "Paul", "Max", "Thomas"],
    "female": ["Anna", "Maria", "Emma", "Clara"],
}
CITIES = {"Berlin": "Berlin", "Hamburg": "Hamburg", "Vienna": "Wien", "Munich": "München"}
FREQUENCIES = {"often": "oft", "always": "immer", "sometimes": "manchmal", "usually": "meistens"}
MANNERS = {"slowly": "langsam", "quietly": "leise", "carefully": "vorsichtig", "quickly": "schnell"}
DEGREES = {"very": "sehr", "too": "zu", "quite": "ziemlich"}
PART_TABLE = {
    "animal": "tail,ear,owner",
    "text": "title,price",
    "thing": "color,price",
    "clothing": "color,price,owner",
    "device": "price,owner",
    "furniture": "color,owner",
    "vehicle": "engine",
    "building": "roof,door,owner",
    "indoors": "door,window",
}
"""Nouns that may follow `whose`, or `its` in a subject, by the kind of the owner."""
WITH_MANNER = "go run drive come lay place carry open close repair clean eat prepare hide follow"
"""Verbs that an adverb of manner may follow."""
WITH_PLACE = """
sleep work dance sing laugh play wait disappear arrive stop buy sell find lose see meet eat hide
steal write feed chase
"""
"""Verbs that a phrase of place may follow."""
RELATIVES = (
    "father,mother,son,daughter,brother,sister,uncle,aunt,friend,neighbor,teacher,doctor,child"
)
"""Persons who may follow a possessive: my brother, but not my man."""
