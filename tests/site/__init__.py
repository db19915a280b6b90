"""The documentation site: the pages of docs/, and what is generated from the code beside them.

``make site`` builds it into build/site with MkDocs, which calls `tests.site.hooks`; mkdocs.yml has the navigation.
"""
