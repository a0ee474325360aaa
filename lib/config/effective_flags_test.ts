import { assert, assertEquals } from "@std/assert";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { FLAG_ROWS } from "./flags.ts";
import { createLogger } from "../log/create_logger.ts";
import { effectiveFlagTexts, logConfiguration } from "./effective_flags.ts";
import { configurationOf } from "../../tests/support/drivers/own_flags.ts";

async function textsOf(...args: readonly string[]): Promise<Readonly<Record<string, string>>> {
  const argv = [...args, "--kubeconfig=/etc/kubeconfig"];
  const { flags, ...configuration } = await configurationOf(argv, {
    readTextFile: () =>
      Promise.resolve(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" +
          "oomScoreAdj: -5\nclientConnection: {kubeconfig: /etc/kubeconfig}\n",
      ),
  });
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

const ARGV = [
  "--kubeconfig=/k",
  "--master=https://me:s3cr3t@host",
  "--iptables-sync-period=90s",
  "--nodeport-addresses=10.0.0.0/8,fd00::/8",
];

async function effective() {
  const { flags, ...configuration } = await configurationOf(ARGV);
  return { flags, configuration };
}

Deno.test("logConfiguration() reports every flag with the value that counts", async () => {
  const logger = new MemoryLogger();
  logConfiguration(logger, await effective());
  const values = new Map(
    logger.lines.filter(({ message }) => message === "Flag")
      .map(({ fields: { flag, value } }) => [flag, value]),
  );
  for (const { name, retired } of FLAG_ROWS) assertEquals(values.has(name), !retired, name);
  assertEquals(values.get("kubeconfig"), "/k");
  assertEquals(values.get("iptables-sync-period"), "1m30s");
  assertEquals(values.get("nodeport-addresses"), ["10.0.0.0/8", "fd00::/8"]);
  assertEquals(values.get("healthz-bind-address"), "0.0.0.0:10256", "not given, and in effect");
});

Deno.test("logConfiguration() reports every field of the configuration, none cut", async () => {
  const lines: string[] = [];
  const logger = createLogger({
    format: "json",
    verbosity: 1,
    sink: (line) => lines.push(line),
  });
  const { flags, configuration } = await effective();
  logConfiguration(logger, { flags, configuration });
  const fields = lines.map((line) => JSON.parse(line)).filter(({ msg }) => msg === "Configuration");
  const reported = new Map(fields.map(({ field, value }) => [field, value]));
  for (const field of [...Object.keys(configuration.proxy), ...Object.keys(configuration.relay)]) {
    assert(reported.has(field), field);
  }
  assertEquals(reported.get("nftables"), JSON.parse(JSON.stringify(configuration.proxy.nftables)));
  assert(!lines.join("").includes("s3cr3t"), "what is secret stays so");
});

Deno.test("effectiveFlagTexts() tells no value of a flag whose name is that of a secret", async () => {
  const rows = FLAG_ROWS as unknown as object[];
  rows.push({ name: "api-token", type: "text", default: "s3cr3t" });
  try {
    assertEquals(effectiveFlagTexts(await effective())["api-token"], "[redacted]");
  } finally {
    rows.pop();
  }
});

Deno.test("logConfiguration() makes nothing at -v 0", async () => {
  const lines: string[] = [];
  const logger = createLogger({ format: "text", verbosity: 0, sink: (line) => lines.push(line) });
  logConfiguration(logger, await effective());
  assertEquals(lines, []);
});
