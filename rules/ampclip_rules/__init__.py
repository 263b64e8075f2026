"""The rules that come with ampclip-lint, in the order of their codes."""

from ampclip_rules.analysis_incomplete import analysis_incomplete
from ampclip_rules.clip_before_unscale import clip_before_unscale
from ampclip_rules.clip_partial_unscale import clip_partial_unscale
from ampclip_rules.syntax_error import syntax_error
from ampclip_rules.unscale_mid_accumulation import unscale_mid_accumulation

RULES = (
    syntax_error,  # AMP001
    analysis_incomplete,  # AMP003
    clip_before_unscale,  # AMP101
    clip_partial_unscale,  # AMP102
    unscale_mid_accumulation,  # AMP201
)
