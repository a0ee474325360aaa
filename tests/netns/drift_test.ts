/**
 * Tests that a mode reports no drift for its own writes, whatever came before.
 *
 * @module
 */
import { Namespace } from "../support/stages/netns.ts";
import { isMissing } from "../support/requirement.ts";
import { RULE_MODES } from "../support/stages/rule_modes.ts";
import { runOtherSettings, runVerifiedChurn } from "../support/stages/verified_churn.ts";

for (const mode of RULE_MODES) {
  Deno.test({
    name: `restart: other settings are no change of another program in ${mode.name}`,
    ignore: isMissing(`restarts with other settings in ${mode.name}`, mode.requirements()),
    async fn() {
      await using node = await Namespace.create("settings");
      await mode.prepare(node);
      await runOtherSettings(node, mode);
    },
  });
}

for (const mode of RULE_MODES) {
  Deno.test({
    name: `churn: no comparison after a sync finds a difference in ${mode.name}`,
    ignore: isMissing(`comparisons under churn in ${mode.name}`, mode.requirements()),
    async fn() {
      await using node = await Namespace.create("drift");
      await mode.prepare(node);
      await runVerifiedChurn(node, mode);
    },
  });
}
