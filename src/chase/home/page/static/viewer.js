// A picture to look at closely: zoom and pan, brightness and contrast, smooth or in pixels.
//
// Pictures of more than 8 bits come from the server in a window of their grey values; brightness and contrast then
// move that window, so that nothing of the data is out of reach. Others are changed by the browser.

import { $, make } from "./ui.js";

const MOST = 16;
const STEP = 1.3;
const PAN = 60;

export class Viewer {
  constructor(rewindow) {
    this.rewindow = rewindow;
    this.box = $("viewer");
    this.img = $("image");
    this.pointers = new Map();
    this.brightness = this.contrast = 0;
    this.crisp = null;
    this.reset();
    this.listen();
  }

  listen() {
    this.box.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? STEP : 1 / STEP, event.clientX, event.clientY);
    }, { passive: false });
    this.box.addEventListener("dblclick", (event) => this.zoom(this.scale > 1 ? 1 / this.scale : 3, event.clientX, event.clientY));
    this.box.addEventListener("pointerdown", (event) => {
      this.pointers.set(event.pointerId, event);
      this.box.setPointerCapture(event.pointerId);
    });
    this.box.addEventListener("pointermove", (event) => this.drag(event));
    for (const name of ["pointerup", "pointercancel"]) this.box.addEventListener(name, (event) => this.pointers.delete(event.pointerId));
    $("zoom-in").addEventListener("click", () => this.zoom(STEP));
    $("zoom-out").addEventListener("click", () => this.zoom(1 / STEP));
    $("zoom-fit").addEventListener("click", () => this.fit());
    $("pixels").addEventListener("click", () => this.setCrisp(!this.img.classList.contains("crisp")));
    $("full").addEventListener("click", () => this.fullScreen());
    $("adjust-open").addEventListener("click", () => this.showAdjust($("adjust").hidden));
    $("adjust-reset").addEventListener("click", () => this.adjust(0, 0));
    for (const id of ["brightness", "contrast"]) {
      $(id).addEventListener("input", () => this.adjust(Number($("brightness").value), Number($("contrast").value)));
    }
  }

  clear() {
    // A new element: the old one could still show its picture for a frame after its address was taken away.
    const fresh = make("img", { id: "image", alt: "", draggable: false });
    this.img.replaceWith(fresh);
    this.img = fresh;
    this.entry = this.sample = null;
    this.pointers.clear();
    clearTimeout(this.pending);
    this.reset();
  }

  reset() {
    this.scale = 1;
    this.x = this.y = 0;
    this.place();
  }

  async show(entry, sample, alt) {
    this.entry = entry;
    this.sample = sample;
    this.img.alt = alt;
    this.box.setAttribute("aria-label", alt);
    if (sample.range) this.brightness = this.contrast = 0;
    await this.put(sample);
    this.setCrisp(this.crisp ?? Math.max(sample.width, sample.height) <= 256, false);
    this.box.hidden = $("tools").hidden = false;
    this.setSliders();
    this.filter();
    this.place();
  }

  async replace(sample) {
    await this.put(sample);
    this.sample = { ...sample, range: this.sample.range }; // the window it came with first
  }

  async put(sample) {
    this.img.src = sample.url;
    await this.img.decode();
  }

  // zoom and pan

  zoom(factor, clientX = null, clientY = null) {
    const box = this.box.getBoundingClientRect();
    const px = clientX === null ? 0 : clientX - box.left - box.width / 2;
    const py = clientY === null ? 0 : clientY - box.top - box.height / 2;
    const scale = Math.min(MOST, Math.max(1, this.scale * factor));
    const change = scale / this.scale;
    this.x = px - (px - this.x) * change;
    this.y = py - (py - this.y) * change;
    this.scale = scale;
    this.place();
  }

  fit() {
    this.scale = 1;
    this.place();
  }

  drag(event) {
    const before = this.pointers.get(event.pointerId);
    if (!before) return;
    const others = [...this.pointers.values()].filter((one) => one.pointerId !== event.pointerId);
    if (others.length) {
      const far = (one, other) => Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY);
      const was = far(before, others[0]);
      if (was > 10) this.zoom(far(event, others[0]) / was, (event.clientX + others[0].clientX) / 2, (event.clientY + others[0].clientY) / 2);
    } else if (this.scale > 1) {
      this.x += event.clientX - before.clientX;
      this.y += event.clientY - before.clientY;
      this.place();
    }
    this.pointers.set(event.pointerId, event);
  }

  place() {
    const roomX = (this.box.clientWidth * (this.scale - 1)) / 2;
    const roomY = (this.box.clientHeight * (this.scale - 1)) / 2;
    this.x = Math.min(roomX, Math.max(-roomX, this.x));
    this.y = Math.min(roomY, Math.max(-roomY, this.y));
    this.img.style.transform = this.scale === 1 ? "" : `translate(${this.x}px, ${this.y}px) scale(${this.scale})`;
    this.box.classList.toggle("zoomed", this.scale > 1);
    $("zoom-fit").textContent = `${Math.round(100 * this.scale)} %`;
  }

  // brightness and contrast, from -100 to 100

  adjust(brightness, contrast) {
    this.brightness = brightness;
    this.contrast = contrast;
    this.setSliders();
    if (!this.sample?.range) {
      this.filter();
      return;
    }
    clearTimeout(this.pending);
    const entry = this.entry;
    this.pending = setTimeout(() => this.rewindow(entry, ...this.window()), 120);
  }

  // The window of grey values: brightness moves its middle, contrast narrows it.
  window() {
    const [least, most, low, high] = this.sample.range;
    const middle = (low + high) / 2 - (this.brightness / 100) * ((most - least) / 2);
    const half = ((high - low) / 2) * 10 ** (-this.contrast / 100);
    return [Math.round(middle - half), Math.max(Math.round(middle - half) + 1, Math.round(middle + half))];
  }

  filter() {
    const deep = Boolean(this.sample?.range);
    const changed = this.brightness !== 0 || this.contrast !== 0;
    this.img.style.filter = deep || !changed ? "" : `brightness(${2 ** (this.brightness / 50)}) contrast(${10 ** (this.contrast / 100)})`;
  }

  setSliders() {
    $("brightness").value = this.brightness;
    $("contrast").value = this.contrast;
    const changed = this.brightness !== 0 || this.contrast !== 0;
    $("adjusted").hidden = !changed;
    $("adjust-reset").disabled = !changed;
    const deep = this.sample?.range;
    $("window-values").textContent = deep ? `Grey values ${this.window().join(" to ")} of ${deep[0]} to ${deep[1]}` : "";
  }

  showAdjust(open) {
    $("adjust").hidden = !open;
    $("adjust-open").setAttribute("aria-expanded", open);
  }

  setCrisp(crisp, chosen = true) {
    if (chosen) this.crisp = crisp;
    this.img.classList.toggle("crisp", crisp);
    $("pixels").textContent = crisp ? "Pixels" : "Smooth";
    $("pixels").setAttribute("aria-pressed", crisp);
  }

  fullScreen() {
    if (document.fullscreenElement) document.exitFullscreen();
    else $("work").requestFullscreen?.();
  }

  key(event) {
    const zooms = { "+": STEP, "=": STEP, "-": 1 / STEP };
    if (event.key in zooms) {
      this.zoom(zooms[event.key]);
      return true;
    }
    if (event.key === "Home") {
      this.fit();
      return true;
    }
    const moves = { ArrowLeft: [PAN, 0], ArrowRight: [-PAN, 0], ArrowUp: [0, PAN], ArrowDown: [0, -PAN] };
    if (this.scale > 1 && event.key in moves) {
      this.x += moves[event.key][0];
      this.y += moves[event.key][1];
      this.place();
      return true;
    }
    return false;
  }
}
