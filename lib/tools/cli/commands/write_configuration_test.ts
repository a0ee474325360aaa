import { assertEquals, assertRejects } from "@std/assert";
import { parse } from "@std/yaml";
import { loadConfiguration, type LoadedConfiguration } from "../../../config/load.ts";
import { parseFlags } from "../../../config/parse_flags.ts";
import type { ProgramDependencies } from "../../../app/run/run_tools.ts";
import { MemoryLogger } from "../../../../tests/support/fakes/memory_logger.ts";
import { configurationText, writeConfigurationVerb } from "./write_configuration.ts";

function load(argv: readonly string[], text?: string): Promise<LoadedConfiguration> {
  const { values: flags } = parseFlags(argv);
  const readTextFile = () => Promise.resolve(text ?? "");
  return loadConfiguration({ readTextFile, uid: 0, env: () => undefined }, { flags });
}

function written(configuration: LoadedConfiguration): Readonly<Record<string, unknown>> {
  return parse(configurationText(configuration)) as Readonly<Record<string, unknown>>;
}

Deno.test("configurationText() fills the block of the active mode, and nftables' node port addresses", async () => {
  const argv = ["--masquerade-all", "--iptables-sync-period=40s", "--ipvs-sync-period=50s"];
  const expected = {
    iptables: [["40s", true], ["0s", undefined], ["0s", false], null],
    ipvs: [["0s", true], ["50s", undefined], ["0s", false], null],
    nftables: [["0s", false], ["0s", undefined], ["40s", true], ["primary"]],
    auto: [["40s", true], ["0s", undefined], ["40s", true], null],
  };
  for (const [mode, values] of Object.entries(expected)) {
    const { iptables, ipvs, nftables, nodePortAddresses, ...rest } = written(
      await load([...argv, `--proxy-mode=${mode}`]),
    );
    const blocks = [iptables, ipvs, nftables] as readonly Readonly<Record<string, unknown>>[];
    const found = blocks.map(({ syncPeriod, masqueradeAll }) => [syncPeriod, masqueradeAll]);
    assertEquals([...found, nodePortAddresses], values, mode);
    assertEquals(rest.mode, mode);
  }
});

Deno.test("configurationText() can be read again with the same result", async () => {
  const argv = [
    "--proxy-mode=ipvs",
    "--ipvs-sync-period=1m30s",
    "--ipvs-exclude-cidrs=10.0.0.0/8,fd00::/8",
    "--nodeport-addresses=10.0.0.0/8",
    "--vmodule=syncer=4",
    "--feature-gates=AllAlpha=true",
    "--kube-api-qps=0.5",
    "--conntrack-udp-timeout=1500ms",
    "--hostname-override=yes",
    "--log-flush-frequency=7s",
    "--cluster-cidr=10.244.0.0/16",
  ];
  const first = await load(argv);
  const text = configurationText(first);
  const { proxy } = await load(["--config=c"], text);
  assertEquals(proxy, first.proxy);
  assertEquals(configurationText(await load(["--config=c"], text)), text);
});

async function write(path: string): Promise<string> {
  const flags = { "write-config-to": path };
  const printed: string[] = [];
  const dependencies = {
    print: (text: string) => printed.push(text),
  } as unknown as ProgramDependencies;
  await writeConfigurationVerb(dependencies, {
    flags,
    configuration: await load([`--write-config-to=${path}`]),
    logger: Object.assign(new MemoryLogger(), { setVerbosity() {}, setVmodule() {} }) as never,
    endInOrder: () => new AbortController().signal,
  });
  return printed.join("");
}

Deno.test("writeConfigurationVerb prints the configuration to standard output", async () => {
  assertEquals(await write("/dev/stdout"), configurationText(await load([])));
});

Deno.test("writeConfigurationVerb names the path that it cannot write to", async () => {
  await assertRejects(
    () => write("/no/such/folder/file"),
    Error,
    "Cannot write the configuration to '/no/such/folder/file': ",
  );
});
