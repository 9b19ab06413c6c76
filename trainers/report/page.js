'use strict';
// Shows the page's data: see trainers/report/page_data.h. Text from the run goes into the page by textContent alone, and to
// dygraphs go numbers alone: its series are called by their places.
(() => {
  const data = JSON.parse(document.getElementById('data').textContent);
  const byId = (id) => document.getElementById(id);
  // Of a middle brightness: they are seen on white and on black.
  const colors = ['#2f7fd1', '#d9742b', '#2e9e6b', '#c4477f', '#8a6fd8', '#a08000', '#2a9db8', '#d14b4b', '#6f8f2a', '#888888'];
  const dashes = [null, [6, 3], [2, 3]];
  const quiet = '#808080';
  const colorOf = (i) => colors[i % colors.length];
  const markColor = {resumed: '#2f7fd1', restarted: '#d9742b', skipped: '#d14b4b', stalled: '#8a6fd8', slow: '#a08000'};

  // element('a', {href: '…'}, child or text…)
  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  function numberText(value) {
    if (value === null || Number.isNaN(value)) return 'not a number';
    const size = Math.abs(value);
    if (Number.isInteger(value) && size < 1e7) return String(value);
    if (size >= 1e7 || size < 1e-4) return value.toExponential(3).replace(/\.?0+e/, 'e');
    return String(Number(value.toPrecision(6)));
  }

  function timeText(seconds) {
    const whole = Math.floor(seconds);
    const two = (value) => String(value).padStart(2, '0');
    if (whole < 60) return numberText(Number(seconds.toFixed(seconds < 10 ? 2 : 1))) + ' s';
    const clock = two(Math.floor(whole / 60) % 60) + ':' + two(whole % 60);
    return Math.floor(whole / 3600) + ':' + clock;
  }

  const over = byId('over');
  const xText = (x) => over.value === 'time' ? timeText(x) : numberText(x);

  // Rows as dygraphs takes them: [x, value of each series…], null where a series has no point there.
  function rowsOf(chart) {
    const rows = new Map();
    chart.series.forEach((series, place) => {
      series[over.value].forEach((x, i) => {
        if (!rows.has(x)) rows.set(x, [x, ...chart.series.map(() => null)]);
        const value = series.values[i];
        rows.get(x)[place + 1] = value === null ? NaN : value;
      });
    });
    return [...rows.values()].sort((a, b) => a[0] - b[0]);
  }

  function drawMarks(canvas, area, graph) {
    canvas.save();
    canvas.font = '11px sans-serif';
    const end = area.x + area.w;
    const places = data.marks.map((mark) => ({mark, x: Math.round(graph.toDomXCoord(mark[over.value])) + 0.5}))
      .filter(({x}) => x >= area.x && x <= end).sort((a, b) => a.x - b.x);
    let free = area.x;
    for (const {mark, x} of places) {
      canvas.strokeStyle = markColor[mark.kind] || quiet;
      canvas.setLineDash([4, 3]);
      canvas.beginPath();
      canvas.moveTo(x, area.y);
      canvas.lineTo(x, area.y + area.h);
      canvas.stroke();
      const width = canvas.measureText(mark.kind).width;
      const left = x + 3 + width <= end ? x + 3 : x - 3 - width;
      // Its word would lie over the last one, or under another's line.
      if (left < free || places.some((other) => other.x > left - 2 && other.x < left + width + 2)) continue;
      canvas.fillStyle = quiet;
      canvas.fillText(mark.kind, left, area.y + 11);
      free = left + width + 4;
    }
    canvas.restore();
  }

  const graphs = [];
  function showAll() {
    for (const graph of graphs) graph.updateOptions({dateWindow: null, valueRange: null});
  }
  function showWindow(range) {
    for (const graph of graphs) graph.updateOptions({dateWindow: range});
  }
  function zoomBy(graph, factor) {
    const [left, right] = graph.xAxisRange();
    const middle = (left + right) / 2;
    const half = (right - left) / 2 * factor;
    showWindow([middle - half, middle + half]);
  }

  // A class and its counts, coloured by their parts of all: blue where the prediction is right.
  function countCells([name, ...counts], target) {
    const all = Math.max(counts.reduce((sum, count) => sum + Number(count), 0), 1);
    return [element('th', {scope: 'row'}, name), ...counts.map((count, i) => {
      const made = element('td', {class: 'number'}, count);
      const part = (0.65 * Math.sqrt(Number(count) / all)).toFixed(3);  // small ones are seen, too
      if (part > 0) made.style.backgroundColor = 'rgba(' + (i === target ? '47,127,209' : '217,116,43') + ',' + part + ')';
      return made;
    })];
  }

  function pictureCell(uri, name) {
    return element('td', {}, ...(uri ? [element('img', {src: uri, alt: 'picture of ' + name, class: 'sample'})] : []));
  }

  // `looks` is what the page's data say of a table beside these, if it is one of them.
  function table(head, rows, looks = {}) {
    const isNumber = (value) => typeof value === 'number' || value === null;
    // All digits of a long number can be asked for.
    const isLong = (value) => /^-?[0-9]+\.[0-9]+(e[-+]?[0-9]+)?$/.test(value) &&
      value.length > Math.max(numberText(Number(value)).length, 9);
    const cell = (name, value) => {
      const made = element(name, name === 'th' ? {scope: 'col'} : {}, isNumber(value) ? numberText(value) : value);
      if (isNumber(value)) made.className = 'number';
      if (!isNumber(value) && isLong(value)) made.replaceChildren(element('data', {value, title: value}, numberText(Number(value))));
      return made;
    };
    const cells = (row, number) => looks.is_confusion ? countCells(row, number) : row.map((value) => cell('td', value));
    const picture = (number) => looks.pictures ? [pictureCell(looks.pictures[number], rows[number][0])] : [];
    const body = element('tbody', {}, ...rows.map((row, number) => element('tr', {}, ...picture(number), ...cells(row, number))));
    const names = [...(looks.pictures ? ['picture'] : []), ...head];
    const made = element('table', {}, element('thead', {}, element('tr', {}, ...names.map((name) => cell('th', name)))), body);
    if (looks.is_confusion) made.className = 'counts';
    // It can be scrolled: so by the keyboard, too.
    return element('div', {class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'table'}, made);
  }

  // A name has one colour in all charts that have it, and so have those that stand beside it there.
  const charts = new Map();  // by name, how many have it
  for (const chart of data.charts) {
    for (const name of new Set(chart.series.map((series) => series.name))) charts.set(name, (charts.get(name) || 0) + 1);
  }
  const shared = new Map();
  for (const {series} of data.charts.filter((chart) => chart.series.some((each) => charts.get(each.name) > 1))) {
    for (const {name} of series) if (!shared.has(name)) shared.set(name, shared.size);
  }

  function addChart(chart) {
    const name = chart.name;
    const looks = chart.series.map((series, i) => shared.get(series.name) ?? i);
    const log = element('input', {type: 'checkbox'});
    const title = element('h3', {}, name);
    const place = element('div', {class: 'curve', tabindex: '0', role: 'group', 'aria-label':
      name + ': curve. Arrows read its points, plus and minus zoom, Escape shows all.'});
    const values = element('p', {class: 'values', role: 'status', 'aria-live': 'polite'});
    const boxes = chart.series.map(() => element('input', {type: 'checkbox', checked: ''}));
    const list = element('ul', {class: 'series'}, ...chart.series.map((series, i) => {
      const swatch = element('span', {class: 'swatch', 'aria-hidden': 'true'});
      swatch.style.borderTopColor = colorOf(looks[i]);
      swatch.style.borderTopStyle = looks[i] < colors.length ? 'solid' : 'dashed';
      return element('li', {}, element('label', {}, boxes[i], swatch, element('span', {}, series.name)));
    }));
    const details = element('details', {}, element('summary', {}, name + ' as a table'));
    byId('curves').append(element('figure', {}, element('figcaption', {}, title, element('label', {}, log, ' logarithmic')),
      ...(chart.note ? [element('p', {}, chart.note)] : []), place, values, list, details));

    let rows = rowsOf(chart);
    log.disabled = !rows.some((row) => row.slice(1).some((value) => value > 0));
    const show = (row) => {
      const seen = chart.series.map((series, i) => [series.name, row[i + 1]]).filter(([, value]) => value !== null);
      values.textContent = over.value.replace('time', 'after') + ' ' + xText(row[0]) + ': ' +
        seen.map(([text, value]) => (chart.series.length > 1 ? text + ' ' : '') + numberText(value)).join(', ');
    };
    const touches = Dygraph.defaultInteractionModel;
    const ofTwo = (handler) => (event, graph, context) => {
      // One finger scrolls the page.
      if (event.touches.length > 1 || context.isZooming) handler(event, graph, context);
    };
    // A window around one point: dygraphs would have none.
    const around = () => rows.length === 1 ? [rows[0][0] - 1, rows[0][0] + 1] : null;
    const graph = new Dygraph(place, rows, {
      labels: ['x', ...chart.series.map((series, i) => String(i))],
      series: Object.fromEntries(chart.series.map((series, i) => [String(i), {
        color: colorOf(looks[i]), strokePattern: dashes[Math.floor(looks[i] / colors.length) % dashes.length]}])),
      legend: 'never',
      connectSeparatedPoints: true,
      drawPoints: rows.length <= 40,
      pointSize: 3,
      strokeWidth: rows.length > 500 ? 1 : 1.6,
      dateWindow: around(),
      xRangePad: 6,
      yRangePad: 18,
      gridLineColor: 'rgba(128,128,128,0.25)',
      axisLineColor: quiet,
      axes: {
        x: {axisLabelFormatter: (x) => xText(x), pixelsPerLabel: 64},
        y: {axisLabelFormatter: (y) => numberText(y), axisLabelWidth: 66},
      },
      highlightCallback: (event, x, points, row) => show(rows[row]),
      unhighlightCallback: () => { values.textContent = ''; },
      underlayCallback: drawMarks,
      zoomCallback: (left, right) => showWindow([left, right]),
      interactionModel: Object.assign({}, touches, {
        touchstart: ofTwo(touches.touchstart), touchmove: ofTwo(touches.touchmove), touchend: ofTwo(touches.touchend),
        dblclick: showAll}),
    });
    graphs.push(graph);

    log.addEventListener('change', () => graph.updateOptions({logscale: log.checked}));
    boxes.forEach((box, i) => box.addEventListener('change', () => graph.setVisibility(i, box.checked)));
    let at = -1;
    place.addEventListener('keydown', (event) => {
      const moves = {ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20, Home: -rows.length, End: rows.length};
      if (event.key in moves && !event.altKey && !event.ctrlKey && !event.metaKey) {
        at = Math.min(Math.max(at + moves[event.key], 0), rows.length - 1);
        graph.setSelection(at);
        show(rows[at]);
      } else if (event.key === '+' || event.key === '=') {
        zoomBy(graph, 0.5);
      } else if (event.key === '-') {
        zoomBy(graph, 2);
      } else if (event.key === 'Escape') {
        showAll();
      } else {
        return;
      }
      event.preventDefault();
    });
    // Made when it is opened: a page has thousands of points.
    details.addEventListener('toggle', () => {
      if (!details.open || details.children.length > 1) return;
      details.append(table([over.selectedOptions[0].textContent, ...chart.series.map((series) => series.name)],
        rows.map((row) => [xText(row[0]), ...row.slice(1).map((value) => value === null ? '' : value)])));
    });
    over.addEventListener('change', () => {
      rows = rowsOf(chart);
      at = -1;
      values.textContent = '';
      details.open = false;
      while (details.children.length > 1) details.lastChild.remove();
      graph.updateOptions({file: rows, dateWindow: around(), valueRange: null});
    });
  }

  function addSection(title, id, ...content) {
    byId('rest').append(element('section', {'aria-labelledby': id}, element('h2', {id: id}, title), ...content));
  }

  document.title = data.title;
  byId('title').textContent = data.title;
  byId('facts').append(...data.facts.map(([name, text]) =>
    element('div', text.length > 40 ? {class: 'sentence'} : {}, element('dt', {}, name), element('dd', {}, text))));
  if (data.charts.length === 0) {
    byId('controls').replaceWith(element('p', {}, 'No line of metrics has been written.'));
  }
  data.charts.forEach(addChart);
  if (data.marks.length > 0) {
    // Where marks are close, the axes have no room for all their words: their colours tell them apart.
    const kind = (mark) => {
      const swatch = element('span', {class: 'swatch', 'aria-hidden': 'true'});
      swatch.style.borderTopColor = markColor[mark.kind] || quiet;
      return element('span', {class: 'kind'}, swatch, mark.kind);
    };
    addSection('Events', 'events', table(['step', 'event', 'what'], data.marks.map((mark) => [mark.step, kind(mark), mark.text])));
  }
  data.tables.forEach((each, i) => addSection(each.title, 'table-' + i,
    ...(each.note ? [element('p', {class: 'hint'}, each.note)] : []), table(each.head, each.rows, each)));
  if (data.left_out > 0) {
    byId('curves').after(element('p', {}, 'There are ' + data.left_out + ' curves more, for which a page has no room.'));
  }

  const smoothing = byId('smoothing');
  const smooth = () => {
    const points = Number(smoothing.value);
    byId('smoothed').textContent = points === 1 ? 'none' : 'of ' + points + ' points';
    for (const graph of graphs) graph.adjustRoll(points);
  };
  smoothing.addEventListener('input', smooth);
  byId('smoothed').textContent = 'none';
  byId('whole').addEventListener('click', showAll);
  byId('controls')?.addEventListener('submit', (event) => event.preventDefault());
})();
