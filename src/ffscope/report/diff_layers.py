FIGURE = None
