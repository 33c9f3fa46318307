"""The administrator's command: ``liqoctl``, also ``kubectl liqo``.

Belongs here: flags, manifests made from flags (``forge``, pure), progress lines, waiting. The
client is imported inside functions, so that completion and ``--help`` stay quick.
"""
