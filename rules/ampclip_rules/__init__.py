"""The rules that come with ampclip-lint, in the order of their codes."""

from ampclip_rules.analysis_incomplete import analysis_incomplete
from ampclip_rules.backward_without_scale import backward_without_scale
from ampclip_rules.clip_after_step import clip_after_step
from ampclip_rules.clip_before_backward import clip_before_backward
from ampclip_rules.clip_before_unscale import clip_before_unscale
from ampclip_rules.clip_mid_accumulation import clip_mid_accumulation
from ampclip_rules.clip_partial_unscale import clip_partial_unscale
from ampclip_rules.clip_threshold_unit import clip_threshold_unit
from ampclip_rules.closure_with_scaler import closure_with_scaler
from ampclip_rules.double_step import double_step
from ampclip_rules.double_unscale import double_unscale
from ampclip_rules.edit_while_scaled import edit_while_scaled
from ampclip_rules.nonfinite_norm_raises import nonfinite_norm_raises
from ampclip_rules.overflow_hidden import overflow_hidden
from ampclip_rules.per_tensor_clip import per_tensor_clip
from ampclip_rules.returned_norm_misread import returned_norm_misread
from ampclip_rules.scaled_norm_read import scaled_norm_read
from ampclip_rules.scaler_mismatch import scaler_mismatch
from ampclip_rules.scaler_recreated import scaler_recreated
from ampclip_rules.stale_scale_read import stale_scale_read
from ampclip_rules.step_bypasses_scaler import step_bypasses_scaler
from ampclip_rules.step_on_scaled_gradients import step_on_scaled_gradients
from ampclip_rules.step_without_gradients import step_without_gradients
from ampclip_rules.syntax_error import syntax_error
from ampclip_rules.unscale_after_step import unscale_after_step
from ampclip_rules.unscale_mid_accumulation import unscale_mid_accumulation
from ampclip_rules.unused_suppression import unused_suppression
from ampclip_rules.update_between_steps import update_between_steps
from ampclip_rules.update_mid_accumulation import update_mid_accumulation
from ampclip_rules.update_missing import update_missing
from ampclip_rules.update_without_check import update_without_check
from ampclip_rules.zero_grad_missing import zero_grad_missing

RULES = (
    syntax_error,  # AMP001
    unused_suppression,  # AMP002
    analysis_incomplete,  # AMP003
    clip_before_unscale,  # AMP101
    clip_partial_unscale,  # AMP102
    clip_after_step,  # AMP103
    clip_threshold_unit,  # AMP104
    edit_while_scaled,  # AMP105
    overflow_hidden,  # AMP106
    clip_before_backward,  # AMP107
    per_tensor_clip,  # AMP108
    clip_mid_accumulation,  # AMP109
    unscale_mid_accumulation,  # AMP201
    double_unscale,  # AMP202
    unscale_after_step,  # AMP203
    step_on_scaled_gradients,  # AMP301
    step_bypasses_scaler,  # AMP302
    backward_without_scale,  # AMP303
    scaler_mismatch,  # AMP304
    double_step,  # AMP305
    step_without_gradients,  # AMP306
    closure_with_scaler,  # AMP307
    zero_grad_missing,  # AMP308
    update_mid_accumulation,  # AMP401
    update_between_steps,  # AMP402
    update_missing,  # AMP403
    scaler_recreated,  # AMP404
    update_without_check,  # AMP405
    scaled_norm_read,  # AMP501
    stale_scale_read,  # AMP502
    nonfinite_norm_raises,  # AMP503
    returned_norm_misread,  # AMP504
)
