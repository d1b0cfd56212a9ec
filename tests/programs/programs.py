"""Programs: all lists of programs, in the order of the table."""
import common
import compilers
import databases
import documents
import languages
import refused
import science

PROGRAMS = [*common.PROGRAMS, *languages.PROGRAMS, *compilers.PROGRAMS, *databases.PROGRAMS,
            *science.PROGRAMS, *documents.PROGRAMS, *refused.PROGRAMS]
