"""Documents: pictures, films, sequences, maps, papers and pages."""
import os
import random
import tempfile

from program import JOBS, Program, digest, installed, job, once, tool
from session import Failure


def make_scene(path):
    """A mesh of a surface with 128,000 triangles."""
    chance = random.Random(18)
    side = 254
    high = [[chance.random() * 0.2 for _ in range(side + 1)] for _ in range(side + 1)]
    with open(path, "w") as file:
        file.write("#version 3.7; global_settings { assumed_gamma 1 }\n"
                   "camera { location <0, 4, -6> look_at 0 }\n"
                   "light_source { <5, 9, -5> rgb 1 }\nmesh {\n")
        for x in range(side):
            for z in range(side):
                corner = [f"<{(x + i) * 6 / side - 3:.4f}, {high[x + i][z + j]:.4f}, "
                          f"{(z + j) * 6 / side - 3:.4f}>" for i, j in ((0, 0), (1, 0), (0, 1), (1, 1))]
                file.write(f"triangle {{ {corner[0]}, {corner[1]}, {corner[2]} }}\n"
                           f"triangle {{ {corner[1]}, {corner[2]}, {corner[3]} }}\n")
        file.write("pigment { rgb <0.8, 0.6, 0.3> } }\n")


def make_graph(path):
    with open(path, "w") as file:
        file.write("digraph g {\n")
        count = 120000
        for i in range(count):
            file.write(f'n{i} [label="node {i * 48271 % 65521}"];\n'
                       f"n{i} -> n{i * 7919 % count} [weight={i % 7 + 1}];\n")
        file.write("}\n")


def make_points(path):
    with open(path, "w") as file:
        for i in range(1200000):
            file.write(f"{i * 48271 % 65521} {i * 69621 % 9973}\n")


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


def prepare_bwa(folder):
    tool("bwa")
    once(folder, "reference.fa", make_reference)


def run_bwa(session, folder):
    out = os.path.join(session.folder, "index")
    session.run(["bwa", "index", "-a", "is", "-p", out, os.path.join(folder, "reference.fa")])
    return digest(*[f"{out}.{part}" for part in ("amb", "ann", "bwt", "pac", "sa")])


def make_alignments(path):
    chance = random.Random(21)
    pool = "".join(chance.choices("ACGT", k=1 << 20))
    with open(path, "w") as file:
        file.write("@HD\tVN:1.6\n@SQ\tSN:one\tLN:200000000\n")
        for i in range(400000):
            at = chance.randrange(len(pool) - 150)
            file.write(f"r{i}\t0\tone\t{chance.randrange(199000000) + 1}\t60\t150M\t*\t0\t0\t"
                       f"{pool[at:at + 150]}\t{'I' * 150}\n")


# ---- maps ----

def make_map(path):
    """A raster of 6,000 times 6,000 points of 16 bits, with the header that ENVI has beside it."""
    chance = random.Random(22)
    row = chance.randbytes(24000)
    with open(path, "wb") as file:
        for y in range(6000):
            at = y * 7 % 6000 * 2
            file.write(row[at:at + 12000])
    with open(path.removesuffix(".part").removesuffix(".img") + ".hdr", "w") as file:
        file.write("ENVI\nsamples = 6000\nlines = 6000\nbands = 1\nheader offset = 0\n"
                   "file type = ENVI Standard\ndata type = 12\ninterleave = bsq\nbyte order = 0\n"
                   "map info = {UTM, 1, 1, 500000, 5000000, 10, 10, 33, North, WGS-84}\n")


# ---- papers ----

def make_paper(path):
    """A PDF of one page with many lines and areas, written by hand."""
    chance = random.Random(23)
    drawing = []
    for _ in range(6000):
        x, y, a, b = (chance.randrange(595), chance.randrange(842), chance.randrange(90),
                      chance.randrange(90))
        drawing.append(f"{chance.random():.2f} {chance.random():.2f} {chance.random():.2f} rg "
                       f"{x} {y} m {x + a} {y} {x} {y + b} {x + a} {y + b} c f")
    body = "\n".join(drawing).encode()
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
               b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Contents 4 0 R/Resources<<>>>>",
               b"<</Length %d>>\nstream\n%s\nendstream" % (len(body), body)]
    with open(path, "wb") as file:
        file.write(b"%PDF-1.4\n")
        places = []
        for number, text in enumerate(objects, 1):
            places.append(file.tell())
            file.write(b"%d 0 obj\n%s\nendobj\n" % (number, text))
        start = file.tell()
        file.write(b"xref\n0 5\n0000000000 65535 f \n")
        file.writelines(b"%010d 00000 n \n" % place for place in places)
        file.write(b"trailer\n<</Size 5/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % start)


def paper(name):
    return lambda folder: (tool(name), once(folder, "paper.pdf", make_paper))


def run_pdftoppm(session, folder):
    out = os.path.join(session.folder, "page")
    session.run(["pdftoppm", "-r", "700", "-singlefile", os.path.join(folder, "paper.pdf"), out])
    return digest(out + ".ppm")


def make_sheet(path):
    with open(path, "w") as file:
        for i in range(60000):
            file.write(f"{i},{i * 48271 % 65521},name of {i * 69621 % 9973},{i % 1009}.5,"
                       f"more text {i % 97}\n")


def run_office(session, folder):
    """To a spreadsheet; and that, since it has dates in it, to text again for the comparison."""
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
            job(["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=1920x1080:rate=25",
                 "-frames:v", "60", "-vf", "reverse", "-threads", "2", "-f", "framemd5", "-"])),
    Program("povray", "POV-Ray: a mesh of triangles",
            lambda folder: (tool("povray"), once(folder, "scene.pov", make_scene)),
            job(["povray", "+I{folder}/scene.pov", "+O{out}", "+FP", "+W320", "+H240", "-D", "+WT2",
                 "-GA", "+A0.3"], output="scene.ppm", stdout=False)),
    Program("graphviz", "Graphviz: a graph read, its strong components found",
            lambda folder: (tool("sccmap"), once(folder, "graph.gv", make_graph)),
            job(["sccmap", "{folder}/graph.gv"])),
    Program("gnuplot", "gnuplot: 1.2 million points",
            lambda folder: (tool("gnuplot"), once(folder, "points.txt", make_points)),
            job(["gnuplot", "-e", "set terminal dumb 120 40; plot '{folder}/points.txt' using 1:2 "
                 "with dots notitle, '' using 2:1 smooth frequency notitle"])),
    Program("samtools", "samtools: alignments sorted in memory",
            lambda folder: (tool("samtools"), once(folder, "items.sam", make_alignments)),
            job(["samtools", "sort", "--no-PG", "-l", "1", "-m", "700M", "-o", "{out}",
                 "{folder}/items.sam"], output="items.bam", stdout=False)),
    Program("minimap2", "minimap2: reads found in a reference", prepare_minimap,
            job(["minimap2", "-t", "2", "-w", "5", "-a", "--sam-hit-only", "{folder}/reference.fa",
                 "{folder}/reads.fa"])),
    Program("bwa", "BWA: an index of a reference", prepare_bwa, run_bwa),
    Program("gdal", "GDAL: a map turned and scaled, its blocks kept in memory",
            lambda folder: (tool("gdalwarp"), once(folder, "map.img", make_map)),
            job(["gdalwarp", "-q", "-of", "ENVI", "-r", "bilinear", "-wm", "200", "-t_srs", "EPSG:3857",
                 "-ts", "5000", "5000", "--config", "GDAL_CACHEMAX", "400", "{folder}/map.img",
                 "{out}"], output="map.img", stdout=False)),
    Program("pdftoppm", "pdftoppm: a page at 700 dots per inch", paper("pdftoppm"), run_pdftoppm),
    Program("ghostscript", "Ghostscript: a page at 700 dots per inch, in one band", paper("gs"),
            job(["gs", "-q", "-dNOPAUSE", "-dBATCH", "-sDEVICE=ppmraw", "-r700",
                 "-dMaxBitmap=1000000000", "-sOutputFile={out}", "{folder}/paper.pdf"],
                output="page.ppm", stdout=False)),
    Program("libreoffice", "LibreOffice: a table of 60,000 rows converted, and back",
            lambda folder: (tool("soffice"), once(folder, "sheet.csv", make_sheet)), run_office),
    Program("chromium", "Chromium without a window: a page with objects, arrays, and elements",
            installed("chromium"), run_chromium),
]
