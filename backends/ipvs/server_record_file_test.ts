import { assertEquals, assertRejects } from "@std/assert";
import { createServerRecordFile, recordedNodePorts } from "./server_record_file.ts";
import { formatServerRecord, MAX_RECORD_BYTES, NO_NODE_PORTS } from "./server_record.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { namesIn, withFolder } from "../../tests/support/with_folder.ts";

const NODE_PORTS = {
  addresses: new Set([parseIpAddress("192.0.2.1")]),
  ports: new Set(["tcp 30080"]),
};
const TEXT = formatServerRecord({ drains: [], nodePorts: NODE_PORTS });

Deno.test("createServerRecordFile() keeps one file for each family, for its owner only", () =>
  withFolder(async (folder) => {
    const directory = `${folder}/not/there/yet`;
    const file = createServerRecordFile({ directory, family: "IPv6" });
    assertEquals(await file.load(), undefined);
    await file.save("old");
    await file.save(TEXT);
    assertEquals(await file.load(), TEXT);
    const other = createServerRecordFile({ directory, family: "IPv4" });
    assertEquals(await other.load(), undefined);
    assertEquals(await namesIn(directory), ["ipvs.ipv6.json"]);
    assertEquals((await Deno.stat(file.path)).mode! & 0o777, 0o600);
    assertEquals((await Deno.stat(directory)).mode! & 0o777, 0o700);
  }));

Deno.test("createServerRecordFile().load() reads the old text after a kill before the rename", () =>
  withFolder(async (directory) => {
    const file = createServerRecordFile({ directory, family: "IPv4" });
    await file.save(TEXT);
    await Deno.writeTextFile(`${file.path}.tmp`, TEXT.slice(0, 10));
    assertEquals(await file.load(), TEXT);
    assertEquals(await recordedNodePorts(file), NODE_PORTS);
  }));

Deno.test("createServerRecordFile().remove() leaves nothing, also of killed and broken ones", () =>
  withFolder(async (directory) => {
    const file = createServerRecordFile({ directory, family: "IPv4" });
    for (const suffix of ["", ".tmp", ".broken"]) {
      await Deno.writeTextFile(`${file.path}${suffix}`, "");
    }
    await file.remove();
    await file.remove();
    assertEquals(await namesIn(directory), []);
  }));

Deno.test("createServerRecordFile() rejects if its directory is none, and cannot be made", () =>
  withFolder(async (folder) => {
    await Deno.writeTextFile(`${folder}/file`, "");
    for (const directory of [`${folder}/file`, `${folder}/file/below`]) {
      const file = createServerRecordFile({ directory, family: "IPv4" });
      await assertRejects(() => file.save(TEXT));
      assertEquals(await recordedNodePorts(file), NO_NODE_PORTS);
    }
  }));

/** Objects that another user may have put there. */
const FOREIGN: Readonly<Record<string, (path: string) => Promise<void>>> = {
  "a file that is too large": (path) => Deno.writeTextFile(path, " ".repeat(MAX_RECORD_BYTES + 1)),
  "a sparse file of a terabyte": async (path) => {
    using file = await Deno.open(path, { write: true, create: true });
    await file.truncate(2 ** 40);
  },
  "a directory": (path) => Deno.mkdir(path),
  "a symlink to a device without end": (path) => Deno.symlink("/dev/zero", path),
  "a pipe without a writer": async (path) => {
    await new Deno.Command("mkfifo", { args: [path] }).output();
  },
};

for (const [what, make] of Object.entries(FOREIGN)) {
  Deno.test(`createServerRecordFile().load() refuses ${what}`, () =>
    withFolder(async (directory) => {
      const file = createServerRecordFile({ directory, family: "IPv4" });
      await make(file.path);
      await assertRejects(() => file.load(), SyntaxError);
      assertEquals(await recordedNodePorts(file), NO_NODE_PORTS);
      assertEquals(await file.setAside(), `${file.path}.broken`);
      await file.save(TEXT);
      assertEquals(await file.load(), TEXT);
    }));
}

Deno.test("createServerRecordFile(): of two processes that write at a time, one record is whole", () =>
  withFolder(async (directory) => {
    const long = formatServerRecord({
      drains: [],
      nodePorts: {
        ...NODE_PORTS,
        ports: new Set(Array.from({ length: 9_999 }, (_, n) => `udp ${n}`)),
      },
    });
    for (let round = 0; round < 20; round++) {
      const files = [TEXT, long].map((text) => ({
        text,
        file: createServerRecordFile({ directory, family: "IPv4" }),
      }));
      await Promise.allSettled(files.map(({ file, text }) => file.save(text)));
      const found = await files[0]!.file.load();
      assertEquals(found === TEXT || found === long, true, `${found?.length} bytes`);
    }
  }));
