import { assertEquals, assertRejects } from "@std/assert";
import { readTextUpTo } from "./read_text_up_to.ts";

async function withFile(content: string, test: (path: string) => Promise<void>): Promise<void> {
  const path = await Deno.makeTempFile();
  try {
    await Deno.writeTextFile(path, content);
    await test(path);
  } finally {
    await Deno.remove(path);
  }
}

Deno.test("readTextUpTo() reads a whole text, whatever its characters and pieces are", async (t) => {
  for (const content of ["", "a", "ü€😀".repeat(50_000)]) {
    await t.step(
      `${content.length} characters`,
      () =>
        withFile(
          content,
          async (path) => assertEquals(await readTextUpTo(path, 1_000_000), content),
        ),
    );
  }
});

Deno.test("readTextUpTo() leaves out a byte order mark", () =>
  withFile("\ufeffa: 1", async (path) => assertEquals(await readTextUpTo(path, 100), "a: 1")));

Deno.test("readTextUpTo() takes the most bytes, and none more", () =>
  withFile("üü", async (path) => {
    assertEquals(await readTextUpTo(path, 4), "üü");
    await assertRejects(() => readTextUpTo(path, 3), RangeError, "more than 3 bytes");
  }));

Deno.test("readTextUpTo() ends on what has no end", async () => {
  await assertRejects(() => readTextUpTo("/dev/zero", 100_000), RangeError, "more than 100000");
});

Deno.test("readTextUpTo() rejects for what is no file", async () => {
  await assertRejects(() => readTextUpTo("/", 10));
  await assertRejects(() => readTextUpTo("/no/such/file", 10), Deno.errors.NotFound);
});
