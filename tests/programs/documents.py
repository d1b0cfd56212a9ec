"""Documents: films, sequences, tables and pages."""
import os
import random
import tempfile

from program import JOBS, Program, digest, installed, job, once, tool
from session import Failure


# ---- sequences ----

def make_reference(path):
    chance = random.Random(19)
    with open(path, "w") as file:
        for part in range(2):
            text = "".join(chance.choices("ACGT", k=5_000_000))
            file.write(f">part{part}\n{text}\n")


def make_reads(reference):
    def make(path):
        chance = random.Random(20)
        with open(reference) as file:
            parts = file.read().split("\n")[1::2]
        with open(path, "w") as file:
            for i in range(2000):
                part = chance.choice(parts)
                at = chance.randrange(len(part) - 2000)
                text = list(part[at:at + 2000])
                for _ in range(60):
                    text[chance.randrange(2000)] = chance.choice("ACGT")
                file.write(f">read{i}\n{''.join(text)}\n")
    return make


def prepare_minimap(folder):
    tool("minimap2")
    reference = once(folder, "reference.fa", make_reference)
    once(folder, "reads.fa", make_reads(reference))


def make_alignments(path):
    chance = random.Random(21)
    pool = "".join(chance.choices("ACGT", k=1 << 20))
    with open(path, "w") as file:
        file.write("@HD\tVN:1.6\n@SQ\tSN:one\tLN:200000000\n")
        for i in range(400000):
            at = chance.randrange(len(pool) - 150)
            file.write(f"r{i}\t0\tone\t{chance.randrange(199000000) + 1}\t60\t150M\t*\t0\t0\t"
                       f"{pool[at:at + 150]}\t{'I' * 150}\n")


# ---- tables and pages ----

def make_sheet(path):
    with open(path, "w") as file:
        for i in range(60000):
            file.write(f"{i},{i * 48271 % 65521},name of {i * 69621 % 9973},{i % 1009}.5,"
                       f"more text {i % 97}\n")


def run_office(session, folder):
    """Converts text to a spreadsheet, and back to text for the comparison, because a spreadsheet has dates."""
    with tempfile.TemporaryDirectory(prefix="tiermem-office-") as place:
        profile = f"-env:UserInstallation=file://{place}"
        for kind, source in (("xlsx", os.path.join(folder, "sheet.csv")),
                             ("csv", os.path.join(session.folder, "sheet.xlsx"))):
            session.run([tool("soffice"), profile, "--headless", "--convert-to", kind, "--outdir",
                         session.folder, source], {"HOME": place})
        return digest(os.path.join(session.folder, "sheet.csv"))


def run_chromium(session, folder):
    out = os.path.join(session.folder, "page.txt")
    with tempfile.TemporaryDirectory(prefix="tiermem-chromium-") as place:
        session.run([tool("chromium"), "--headless", "--no-sandbox", "--disable-gpu",
                     "--disable-dev-shm-usage", f"--user-data-dir={place}", "--timeout=200000",
                     "--dump-dom", "file://" + os.path.join(JOBS, "page.html")],
                    {"HOME": place}, out)
    with open(out) as file:
        if "none</p>" in (text := file.read()) or "</html>" not in text:
            raise Failure("the page was not worked through")
    return digest(out)


PROGRAMS = [
    Program("ffmpeg", "FFmpeg: a film turned round, all frames in memory", installed("ffmpeg"),
            job(["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=1920x1080:rate=25:duration=2.4",
                 "-vf", "reverse", "-threads", "2", "-f", "framemd5", "-"])),
    Program("samtools", "samtools: alignments sorted in memory",
            lambda folder: (tool("samtools"), once(folder, "items.sam", make_alignments)),
            job(["samtools", "sort", "--no-PG", "-l", "1", "-m", "700M", "-o", "{out}",
                 "{folder}/items.sam"], output="items.bam", stdout=False)),
    Program("minimap2", "minimap2: reads found in a reference", prepare_minimap,
            job(["minimap2", "-t", "2", "-w", "5", "-a", "--sam-hit-only", "{folder}/reference.fa",
                 "{folder}/reads.fa"])),
    Program("libreoffice", "LibreOffice: a table of 60,000 rows converted, and back",
            lambda folder: (tool("soffice"), once(folder, "sheet.csv", make_sheet)), run_office),
    Program("chromium", "Chromium without a window: a page with objects, arrays, and elements",
            installed("chromium"), run_chromium, not_tiered="no memory of this process is tiered"),
]
