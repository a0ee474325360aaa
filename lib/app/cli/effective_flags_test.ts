import { assertEquals } from "@std/assert";
import { loadConfiguration } from "../../config/load.ts";
import { parseFlags } from "../../config/parse_flags.ts";
import { effectiveFlagTexts } from "./effective_flags.ts";

async function textsOf(...args: readonly string[]): Promise<Readonly<Record<string, string>>> {
  const { values: flags } = parseFlags([...args, "--kubeconfig=/etc/kubeconfig"]);
  const configuration = await loadConfiguration({
    uid: 0,
    env: () => undefined,
    readTextFile: () =>
      Promise.resolve(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" +
          "oomScoreAdj: -5\nclientConnection: {kubeconfig: /etc/kubeconfig}\n",
      ),
  }, { flags });
  return effectiveFlagTexts({ flags, configuration });
}

Deno.test("effectiveFlagTexts() writes values as they could be typed", async () => {
  const texts = await textsOf(
    "--nodeport-addresses=10.0.0.0/8,fd00::/8",
    "--feature-gates=ComponentFlagz=true,AllAlpha=false",
    "--conntrack-udp-timeout=90s",
    "--masquerade-all",
  );
  assertEquals(texts["nodeport-addresses"], "10.0.0.0/8,fd00::/8");
  assertEquals(texts["feature-gates"], "ComponentFlagz=true,AllAlpha=false");
  assertEquals(texts["conntrack-udp-timeout"], "1m30s");
  assertEquals(texts["masquerade-all"], "true");
});

Deno.test("effectiveFlagTexts() has a value for flags that were not given, and the file's", async () => {
  const texts = await textsOf("--config=proxy.yaml", "--oom-score-adj=-900");
  assertEquals(texts["oom-score-adj"], "-5");
  assertEquals(texts["conntrack-max-per-core"], "32768");
  assertEquals(Object.keys(texts).includes("udp-timeout"), true);
});
