import { assertEquals, assertRejects } from "@std/assert";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { serviceKey } from "../../../lib/proxy/service_port_name.ts";
import { type AddressRecord, createFileStore, EMPTY_RECORD } from "./address_store.ts";
import { withFolder } from "../../../tests/support/with_folder.ts";

const RECORD: AddressRecord = {
  addresses: new Set(["fd00:96::1", "fd00:96::2"].map(parseIpAddress)),
  routes: new Set([parseCidr("fd00:96::/112")]),
  previousNonlocalBind: "0",
  standIns: new Map([[serviceKey({ namespace: "ns1", name: "web" }), parseIpAddress("::1")]]),
};

Deno.test("createFileStore() returns the saved record, with one file for each family", async () => {
  await withFolder(async (folder) => {
    const directory = `${folder}/not/there/yet`;
    const store = createFileStore({ directory, family: "IPv6" });
    assertEquals(await store.load(), EMPTY_RECORD);
    await store.save(RECORD);
    assertEquals(await createFileStore({ directory, family: "IPv6" }).load(), RECORD);
    assertEquals(await createFileStore({ directory, family: "IPv4" }).load(), EMPTY_RECORD);
  });
});

Deno.test("createFileStore() leaves no temporary file, and lets only the owner read", async () => {
  await withFolder(async (folder) => {
    const store = createFileStore({ directory: `${folder}/run`, family: "IPv4" });
    await store.save(RECORD);
    await store.save(EMPTY_RECORD);
    const names = [];
    for await (const { name } of Deno.readDir(`${folder}/run`)) names.push(name);
    assertEquals(names, ["addresses.ipv4.json"]);
    assertEquals((await Deno.stat(store.path ?? "")).mode! & 0o777, 0o600);
    assertEquals((await Deno.stat(`${folder}/run`)).mode! & 0o777, 0o700);
  });
});

Deno.test("createFileStore() replaces a partial file of a crash", async () => {
  await withFolder(async (directory) => {
    const store = createFileStore({ directory, family: "IPv6" });
    await Deno.writeTextFile(`${store.path}.tmp`, "x".repeat(10_000));
    assertEquals(await store.load(), EMPTY_RECORD);
    await store.save(RECORD);
    assertEquals(await store.load(), RECORD);
  });
});

Deno.test("createFileStore().remove() may be called twice", async () => {
  await withFolder(async (directory) => {
    const store = createFileStore({ directory, family: "IPv6" });
    await store.save(RECORD);
    await store.remove();
    await store.remove();
    assertEquals(await store.load(), EMPTY_RECORD);
  });
});

const BROKEN: readonly [string, string][] = [
  ["cut off", '{"version":1,"addresses":["10.9'],
  ["empty", ""],
  ["null", "null"],
  ["of another version", '{"version":2}'],
  ["without a list", '{"version":1,"addresses":"10.96.0.1","routes":[]}'],
  ["with a host name", '{"version":1,"addresses":["localhost"],"routes":[]}'],
  ["with a bad range", '{"version":1,"addresses":[],"routes":["10.96.0.0"]}'],
  [
    "with words for sysctl",
    '{"version":1,"addresses":[],"routes":[],"previousNonlocalBind":"0 -p /etc/x"}',
  ],
];

for (const [what, text] of BROKEN) {
  Deno.test(`createFileStore().load() refuses a record that is ${what}`, async () => {
    await withFolder(async (directory) => {
      const store = createFileStore({ directory, family: "IPv4" });
      await Deno.writeTextFile(store.path ?? "", text);
      await assertRejects(() => store.load(), SyntaxError);
      assertEquals(await store.setAside(), `${store.path}.broken`);
      assertEquals(await store.load(), EMPTY_RECORD);
      assertEquals(await Deno.readTextFile(`${store.path}.broken`), text);
    });
  });
}
