import { assertEquals, assertRejects } from "@std/assert";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { MemoryLogger } from "../../../tests/support/fakes/memory_logger.ts";
import { AddressLedger } from "./address_ledger.ts";
import { createFileStore } from "./address_store.ts";

Deno.test("AddressLedger names a state directory that it cannot write to, once, and records nothing", async () => {
  const folder = await Deno.makeTempDir();
  try {
    // Permissions do not restrict root; a file in the folder's place does.
    const directory = `${folder}/state`;
    await Deno.writeTextFile(directory, "");
    const logger = new MemoryLogger();
    const store = createFileStore({ directory, family: "IPv4" });
    const ledger = new AddressLedger({ store, logger });
    const addresses = [parseIpAddress("10.96.0.1")];
    for (let round = 0; round < 2; round++) {
      await assertRejects(() => ledger.intend({ addresses }));
      assertEquals(ledger.addresses.size, 0);
    }
    assertEquals(logger.lines.map(({ level, fields }) => [level, fields.file]), [
      ["warn", `${directory}/addresses.ipv4.json`],
    ]);
    await Deno.remove(directory);
    await ledger.intend({ addresses });
    assertEquals((await store.load()).addresses, new Set(addresses));
  } finally {
    await Deno.remove(folder, { recursive: true });
  }
});
