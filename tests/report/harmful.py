"""Names that would do harm if they were not escaped."""

SITES = {
    "site01": "<script>window.pwned=1</script>",
    "site02": '"><img src=x onerror="window.pwned=1">',
    "site03": "O'Hara & Söhne",
    "site04": "{{ 7 * 7 }}",
    "site05": "plain",
}
NASTY = "</script><script>window.pwned=1</script>"
