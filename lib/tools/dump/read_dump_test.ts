import { assertEquals, assertRejects, assertThrows } from "@std/assert";
import { testDump } from "../../../tests/support/builders/test_dump.ts";
import { DUMP_SCHEMA, INPUT_PART, OUTCOME_PART } from "./dump_schema.ts";
import { DumpError, parseDump, readDumpFile } from "./read_dump.ts";

const SOURCE = "dump 'node7.json'";

/** The text of a dump of which one field is something else; `undefined` takes it away. */
function changed(path: string, value: unknown): string {
  const dump = JSON.parse(testDump());
  const steps = path.split(".");
  const last = steps.pop()!;
  const holder = steps.reduce((inner, step) => inner[step], dump);
  if (value === undefined) delete holder[last];
  else holder[last] = value;
  return JSON.stringify(dump);
}

function refusal(text: string): string {
  return assertThrows(() => parseDump(text, SOURCE, DUMP_SCHEMA), DumpError).message;
}

const REFUSALS: readonly (readonly [path: string, value: unknown, said: string])[] = [
  [
    "kind",
    "Pod",
    "it is not a dump: 'kind' has to be 'kube-relay dump'; 'kube-relay dump FILE' writes one",
  ],
  [
    "formatVersion",
    1,
    "it has version 1 of the format, and this release reads only version 2; use the release that wrote it",
  ],
  ["mode", "ebpf", 'mode is "ebpf": it has to be iptables, ipvs, nftables or userspace'],
  ["nodeName", undefined, "nodeName is missing"],
  [
    "nodeName",
    "a\u001b[2Jb",
    "nodeName is \"a\\u001b[2Jb\": it has to be a name of letters, digits, '-' and '.', with a " +
    "letter or digit at both ends",
  ],
  [
    "objects.services.0.spec.ports.0.port",
    "http",
    'objects.services[0].spec.ports[0].port is "http": it has to be a number',
  ],
  [
    "objects.services.0.spec.clusterIP",
    "10.0.0.1\n",
    'objects.services[0].spec.clusterIP is "10.0.0.1\\n": it has to be text without control characters',
  ],
  ["objects.endpointslices", {}, "objects.endpointslices is an object: it has to be a list"],
  ["objects.services.0", [], "objects.services[0].metadata is missing"],
  [
    "families.0.facts.features.comment",
    "yes",
    'families[0].facts.features.comment is "yes": it has to be true or false',
  ],
  [
    "families.0.interfaceAddresses.0",
    "x".repeat(1000),
    `families[0].interfaceAddresses[0] is "${"x".repeat(39)}…: it has to be an IP address`,
  ],
  [
    "configuration.relay.serviceCidrs.0",
    "10.0.0.0/99",
    'configuration.relay.serviceCidrs[0] is "10.0.0.0/99": it has to be a CIDR such as 10.96.0.0/12',
  ],
  [
    "changes.entries.0.kind",
    "party",
    'changes.entries[0].kind is "party": it has to be sync, flows, quarantine, drift, repair, health or configuration',
  ],
];

for (const [path, value, said] of REFUSALS) {
  Deno.test(`parseDump() refuses ${path} = ${JSON.stringify(value)?.slice(0, 20)}`, () => {
    assertEquals(refusal(changed(path, value)), `Cannot read dump 'node7.json': ${said}`);
  });
}

Deno.test("parseDump() looks at the part that is wanted only", () => {
  const strange = changed("status", 7);
  assertEquals("status" in parseDump(strange, SOURCE, INPUT_PART), false);
  assertThrows(() => parseDump(strange, SOURCE, OUTCOME_PART), DumpError, "status is 7");
});

Deno.test("parseDump() checks the depth of unknown fields, and does not follow them", () => {
  const deep = `${"[".repeat(200_000)}${"]".repeat(200_000)}`;
  const text = testDump();
  parseDump(text.replace("{", `{"other":${deep},`), SOURCE, DUMP_SCHEMA);
  assertEquals(
    refusal(text.replace(/"mode":"\w+"/, `"mode":${deep}`)),
    "Cannot read dump 'node7.json': mode is a list: it has to be iptables, ipvs, nftables or userspace",
  );
});

Deno.test("parseDump() takes no field from a prototype, and sets none", () => {
  const text = testDump().replace("{", '{"__proto__":{"polluted":true},');
  const dump = parseDump(text, SOURCE, DUMP_SCHEMA);
  assertEquals("polluted" in dump || "polluted" in {}, false);
  assertEquals(
    refusal(`{"__proto__":${testDump()}}`).includes("it is not a dump"),
    true,
  );
});

Deno.test("readDumpFile() names a missing file", async () => {
  const { message } = await assertRejects(
    () => readDumpFile("/nowhere/node7.json", DUMP_SCHEMA),
    DumpError,
  );
  assertEquals(message.startsWith("Cannot read dump '/nowhere/node7.json': No such file"), true);
});
